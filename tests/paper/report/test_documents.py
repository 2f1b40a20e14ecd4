"""``hma report TABLE`` from the command line, with records on disk."""

import contextlib
import io
import shutil
import sys
from pathlib import Path

import pytest
from table_records import keep, made_up_table, records_of

from hma.__main__ import main
from hma.io.files import FileError, HeldError, hold_lock
from hma.paper.experiment_files import experiments_folder, load_tables
from hma.paper.report.documents import documents, report_of, write_documents
from hma.paper.report.formats import latex, markdown, plain_text
from hma.paper.report.page import page
from hma.paper.results import Failure, Results

ROOT = Path(__file__).parents[3]
EXPERIMENT = """
from table_records import made_up_table

TABLE = made_up_table(key={key!r})
"""


@pytest.fixture
def places(tmp_path):
    """Return options that name a folder of experiments and one of results, half measured."""
    (tmp_path / "experiments").mkdir()
    for key in ("T9", "T10"):
        (tmp_path / "experiments" / f"{key}.py").write_text(EXPERIMENT.format(key=key))
    table = made_up_table()
    results = Results(tmp_path / "results")
    keep(results, records_of(table, table.cells("small")[:31]))
    results.keep_failure(table.cells("small")[31], Failure("it broke"))
    folders = ["--experiments", tmp_path / "experiments", "--results", tmp_path / "results"]
    return [str(word) for word in folders]


@pytest.fixture
def hma(places, monkeypatch):
    """Run a report; returns exit code, what was printed, and the error."""

    def run(*words, given=places):
        out, err, code = io.StringIO(), io.StringIO(), 0
        monkeypatch.setattr(sys, "argv", ["hma", "report", *map(str, words), *given])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as ended:
                code = ended.code or 0
        return code, out.getvalue(), err.getvalue()

    return run


@pytest.fixture
def report(tmp_path, places):
    return report_of(made_up_table(), "small", Results(tmp_path / "results"))


def test_a_table_is_printed_and_missing_cells_are_said(hma, report):
    code, out, _ = hma("t9")
    assert code == 0
    assert out == plain_text(report)
    assert "31 of 60 cells are measured, 1 of the others failed" in " ".join(out.split())


def test_formats_go_where_they_are_sent_by_name_or_by_suffix(hma, report, tmp_path):
    made = {"md": markdown([report]), "tex": latex(report), "html": page(report)}
    made["txt"] = plain_text(report)
    for suffix, text in made.items():
        target = tmp_path / "new" / f"table.{suffix}"
        assert hma("T9", "-o", target)[0] == 0
        assert target.read_text(encoding="utf-8") == text
    assert hma("T9", "--format", "markdown")[1] == made["md"]
    assert hma("T9", "--format", "latex")[1] == made["tex"]
    assert hma("T9", "--format", "latex", "-o", tmp_path / "odd.suffix")[0] == 0
    assert (tmp_path / "odd.suffix").read_text() == made["tex"]


def test_a_page_without_a_place_is_named_after_the_table(hma, report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = hma("T9", "--format", "html")
    assert (code, out) == (0, "wrote T9-small.html\n")
    assert Path("T9-small.html").read_text(encoding="utf-8") == page(report)


def test_a_part_of_a_table_can_be_asked_for(hma):
    _, out, _ = hma("T9", "--only", "left/hma", "--seeds", "2", "--budget", "paper")
    assert "0 of 2 cells are measured" in out
    assert "hma run T9 --budget paper --only 'left/hma' --seeds 2" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["T99"], "T99 is neither a run (a folder with run.json, as hma train writes) nor a table: "
         "table must be one of 'T10', 'T9', got 'T99'; did you mean 'T9'?"),
        (["T9", "--budget", "smal"], "did you mean 'small'?"),
        (["T9", "--only", "lef"], "did you mean 'left'?"),
        (["T9", "--seeds", "0"], "seeds must be 1 to 10 for T9, got 0"),
        (["T9", "-o", "table.gif"], ".txt, .md, .tex, .html, .png, .pdf, .svg"),
        (["all", "--format", "html"], "--format html is for one"),
        (["all", "--seeds", "3"], "all takes no --budget, --only or --seeds"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line(hma, words, message):
    code, out, err = hma(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_folder_that_is_no_run_is_told_so(hma, tmp_path):
    code, _, err = hma(tmp_path)
    assert code == 2
    assert "is not a run: it has no run.json" in err


def test_options_of_tables_are_refused_for_a_run(hma, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    assert "are for tables" in hma(tmp_path, "--seeds", "3")[2]
    assert "--format must be html or markdown, got latex" in hma(tmp_path, "--format", "latex")[2]


def test_all_writes_a_document_for_each_measured_table_and_an_index(hma, tmp_path):
    code, out, _ = hma("all", "-o", tmp_path / "docs")
    assert code == 0
    names = {path.name for path in (tmp_path / "docs").iterdir()}
    assert names == {"T9.md", "T9-small.svg", "README.md", "paper.md", "paper.csv"}
    assert len(out.splitlines()) == 5
    index = (tmp_path / "docs" / "README.md").read_text(encoding="utf-8")
    assert "| [T9](T9.md) | Made up | small | 31 of 60 (1 failed) |" in index
    assert "![Made up](T9-small.svg)" in (tmp_path / "docs" / "T9.md").read_text(encoding="utf-8")


def test_all_without_a_record_says_so(hma, tmp_path):
    shutil.rmtree(tmp_path / "results")
    assert "no table has a record" in hma("all", "-o", tmp_path / "docs")[2]
    assert not (tmp_path / "docs").exists()


def test_budgets_of_one_table_share_a_document_and_do_not_mix(tmp_path):
    table = made_up_table()
    cells = [*table.cells("smoke")[:2], *table.cells("small")[:4]]
    results = keep(Results(tmp_path), records_of(table, cells))
    text = documents([table], results)["T9.md"]
    smoke, small = text.split("## Budget small\n")
    assert "2 of 60 cells are measured" in smoke
    assert "4 of 60 cells are measured" in small


def test_a_full_disk_leaves_the_documents_that_were_there(tmp_path, monkeypatch):
    table = made_up_table()
    results = keep(Results(tmp_path / "results"), records_of(table, table.cells("small")[:2]))
    write_documents([table], results, tmp_path / "docs")
    before = {path.name: path.read_bytes() for path in (tmp_path / "docs").iterdir()}
    keep(results, records_of(table))

    def no_room(self, text, **_):
        with open(self, "w") as file:
            file.write(text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", no_room)
    with pytest.raises(FileError, match="No space left"):
        write_documents([table], results, tmp_path / "docs")
    after = {path.name: path.read_bytes() for path in (tmp_path / "docs").iterdir()}
    assert after == before


def test_a_damaged_record_names_its_file(hma, tmp_path):
    path = next((tmp_path / "results" / "T9").rglob("0.json"))
    path.write_text(path.read_text()[:100])
    code, _, err = hma("T9")
    assert code == 2
    assert str(path) in err


def test_the_documents_in_the_repository_are_those_of_its_records():
    results = Results(ROOT / "results")
    for lock in (results.folder / ".unfinished").rglob("*.lock"):
        try:
            with hold_lock(lock):
                pass
        except HeldError:
            pytest.skip("results are being measured now")
    found = documents(load_tables(experiments_folder(ROOT / "experiments")).values(), results)
    if not found:
        pytest.skip("there are no records")
    folder = ROOT / "docs" / "results"
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*")}
    assert there.keys() == found.keys(), "make results"
    for name, text in found.items():
        assert there[name] == text, f"docs/results/{name} is not of these records: make results"
