"""The page of what the paper holds: it prints what its parts say, and the CSV reads back."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from table_records import keep, made_up_table, records_of

from hma.__main__ import main
from hma.paper.experiment_files import load_tables
from hma.paper.report.documents import documents, paper_verdict, reports_of
from hma.paper.report.scores import spread
from hma.paper.report.verdict_page import PaperVerdict, comma_separated, page
from hma.paper.results import Results
from hma.paper.table import Claim

ROOT = Path(__file__).parents[3]
PAPER = ROOT.parent / "shared" / "paper" / "published.json"
CLAIM = Claim(says="hma is more", where="table 9", rows=(("hma", "plain"),))


@pytest.fixture
def made(tmp_path):
    """Return a table, its records and its verdict; the right half is measured by a row alone."""
    table = made_up_table(claims=(CLAIM,))
    records = {
        cell: record
        for cell, record in records_of(table, table.cells("paper")).items()
        if cell.task == "left" or cell.method == "rma"
    }
    results = keep(Results(tmp_path), records)
    return table, records, results, PaperVerdict.of(reports_of(table, results))


def lines_of(text, heading):
    """Return the fields of the first table after a heading."""
    _, _, after = text.partition(f"\n## {heading}\n")
    lines = [line for line in after.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[field.strip() for field in line.strip("| ").split(" | ")] for line in lines[2:]]


def test_every_published_number_has_a_line(made):
    table, _, results, verdict = made
    text = page(verdict)
    lines = lines_of(text, "T9")
    assert [line[:3] for line in lines] == [
        ["plain", "left", "70.00 ± 1.50"],
        ["plain", "right", "60.00 ± 0.25"],
        ["hma", "left", "72.25 ± 0.50"],
    ]
    (report,) = [one for one in reports_of(table, results) if one.budget == "paper"]
    entry = report.entries["left", "plain"]
    assert lines[0][3] == spread("accuracy", entry.measured)
    assert lines[0][6:8] == ["10 of 10", "as published"]
    assert lines[1][7:9] == ["not available (1)", "open"]
    assert "- (1) not measured yet" in text
    assert lines[2][-1] == "`hma run T9 --budget paper --only 'left/hma' --seeds 10`"


def test_counts_and_hours_are_those_of_the_records(made):
    _, records, _, verdict = made
    (line, whole) = lines_of(page(verdict), "Numbers, by table")
    assert line[2:6] == ["3", "2", "0", "1"]
    hours = sum(record.seconds for record in records.values()) / 3600
    assert float(line[-1]) == pytest.approx(hours, abs=0.05)
    assert whole[2:] == line[2:]
    assert sum(map(int, line[6:9])) == 3


def test_a_claim_has_a_line_with_its_verdict(made):
    *_, verdict = made
    ((says, where, told, evidence),) = lines_of(page(verdict), "Claims, a line each")
    (finding,) = verdict.findings
    assert (says, where, told) == ("hma is more", "table 9", f"**{finding.verdict}**")
    assert "mean of 1 of 2 differences (T9 1)" in evidence
    assert "the paper prints +2.25 for these" in evidence


def test_the_csv_has_all_that_is_published_or_measured(made):
    *_, verdict = made
    lines = list(csv.DictReader(io.StringIO(comma_separated(verdict))))
    assert [(one["task"], one["row"]) for one in lines] == [
        ("left", "plain"), ("left", "rma"), ("left", "hma"), ("right", "plain"), ("right", "rma"),
    ]  # fmt: skip
    for line, number in zip(lines, verdict.numbers, strict=True):
        assert (line["published"] == "") is (number.published is None)
        assert (line["verdict"] == "") is (number.published is None)
        if number.measured:
            assert float(line["ours"]) == pytest.approx(number.measured.mean, abs=1e-4)


def test_suites_that_the_paper_does_not_have_are_passed_over(made, tmp_path):
    _, _, results, _ = made
    own = made_up_table(published={})
    assert paper_verdict([own], results) is None
    assert "paper.md" not in documents([own], results)
    assert {"paper.md", "paper.csv"} <= documents([made[0]], results).keys()
    assert "[what of the paper holds?](paper.md)" in documents([made[0]], results)["README.md"]


def test_the_command_prints_the_page_and_the_csv(made, tmp_path, monkeypatch, capsys):
    _, _, results, verdict = made
    folder = tmp_path / "experiments"
    folder.mkdir()
    text = "from table_records import made_up_table\nfrom hma.paper.table import Claim\n\nTABLE = "
    claim = 'Claim(says="hma is more", where="table 9", rows=(("hma", "plain"),))'
    (folder / "t9.py").write_text(f'{text}made_up_table(key="T9", claims=({claim},))\n')
    places = ["--experiments", str(folder), "--results", str(results.folder)]
    for words, expected in (([], page(verdict)), (["--format", "csv"], comma_separated(verdict))):
        monkeypatch.setattr(sys, "argv", ["hma", "paper", *words, *places])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert capsys.readouterr().out == expected
    monkeypatch.setattr(sys, "argv", ["hma", "paper", *places[:3], str(tmp_path / "none")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no table of the paper has a record" in capsys.readouterr().err


@pytest.mark.skipif(not PAPER.exists(), reason=f"the paper's numbers are not at {PAPER}")
def test_the_experiment_files_hold_every_number_that_the_paper_prints():
    printed = [
        value
        for table in json.loads(PAPER.read_text()).values()
        if isinstance(table.get("results"), dict)
        for cells in table["results"].values()
        for value in (cells.values() if isinstance(cells, dict) else [cells])
    ]
    tables = load_tables(ROOT / "experiments").values()
    ours = [value for t in tables for cells in t.published.values() for value in cells.values()]
    assert len(ours) == 218
    assert sorted(map(tuple, printed)) == sorted(ours)
