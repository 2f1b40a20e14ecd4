"""``hma tables``, ``hma run`` and ``hma search`` as a user types them."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hma.paper.cells import measure
from hma.paper.experiment_files import load_table, table_files
from hma.paper.processes import Processes
from hma.paper.results import Results
from hma.paper.table import Cell

TOYS = Path(__file__).parents[1] / "paper" / "toys"


@pytest.fixture
def places(tmp_path):
    return ["--experiments", TOYS, "--results", tmp_path / "results"]


def test_tables_lists_what_is_measured(run_hma, places, tmp_path):
    table = load_table(TOYS / "toy.py")
    cell = Cell("TOY", "smoke", "easy", "ERM", 0)
    Results(tmp_path / "results").keep(cell, measure(table, cell, None))
    ended = run_hma("tables", *places)
    assert ended.code == 0
    (line,) = [line for line in ended.out.splitlines() if "TOY" in line]
    assert [word for word in line.split() if "/" in word] == ["1/8", "0/9", "0/27"]


@pytest.mark.slow
def test_run_measures_what_is_missing_once(run_hma, places, tmp_path):
    asked = ["run", "TOY", "--budget", "smoke", "--only", "easy/ERM", *places]
    first = run_hma(*asked, "--workers", 2)
    assert first.code == 0, first.err
    assert "2 cells finished" in first.out
    assert "[2/2] done: TOY smoke easy/ERM seed" in first.err
    record = Results(tmp_path / "results").path(Cell("TOY", "smoke", "easy", "ERM", 1))
    before = record.stat().st_mtime_ns
    again = run_hma(*asked)
    assert "all 2 cells are measured" in again.out
    assert record.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_failing_cell_ends_with_its_error_and_exit_code_1(run_hma, places):
    ended = run_hma(
        "run", "toy", "--budget", "smoke", "--only", "easy/BROKEN", "--seeds", 1, *places
    )
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert last.startswith("hma: TOY smoke easy/BROKEN seed 0 failed: ValueError: this row never")
    assert "Traceback" not in ended.err


def test_missing_data_is_one_message_and_no_process(refuses, places, monkeypatch):
    def start(self, cell):
        raise AssertionError(f"a process was started for {cell}")

    monkeypatch.setattr(Processes, "start", start)
    message = refuses("run", "TOY", "--budget", "smoke", "--only", "absent/ERM,absent/HMA", *places)
    assert message.startswith("hma: the toy is missing: looked for /nowhere/toy; put the data of")
    assert len(message.splitlines()) == 1


def test_where_some_data_is_missing_the_rest_is_measured(run_hma, places):
    ended = run_hma(
        "run", "TOY", "--budget", "smoke", "--only", "*/ERM,*/HMA", *places, "--seeds", "1"
    )
    assert ended.code == 2
    said = ended.err.splitlines()
    assert sum(line.startswith("no data") for line in said) == 1
    assert said[-1].startswith("hma: the toy is missing: looked for /nowhere/toy")
    assert sum("done: TOY smoke" in line for line in said) == 4


def test_ctrl_c_while_an_experiment_file_is_imported_ends_with_one_line(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\n\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(5)\nexcept BaseException as error:  # as packages do that are imported\n"
        "    raise ImportError('half imported') from error\n"
    )
    handled = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    asked = ["run", "slow", "--experiments", str(tmp_path), "--results", str(tmp_path / "results")]
    ended = subprocess.run(
        [sys.executable, "-m", "hma", *asked], capture_output=True, text=True, preexec_fn=handled
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "hma: interrupted before anything was done\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "TOO"], "table must be one of 'TOY', got 'TOO'; did you mean 'TOY'?"),
        (["run", "TOY", "--budget", "smal"], "got 'smal'; did you mean 'small'?"),
        (["run", "TOY", "--only", "easy/HMB"], "got 'HMB'; did you mean 'HMA'?"),
        (["run", "TOY", "--seeds", "9"], "seeds must be 1 to 3 for TOY, got 9"),
        (["run", "TOY", "--workers", "0"], "workers must be at least 1, got 0"),
        (
            ["search", "TOY", "--only", "easy"],
            "'easy', which is easy/ERM, easy/HMA",
        ),
        (["search", "TOY", "--only", "easy/BROKEN"], "BROKEN has nothing to search in TOY"),
    ],
)
def test_a_wrong_name_says_which_there_are(refuses, places, arguments, message):
    assert message in refuses(*arguments, *places)


@pytest.mark.parametrize("asked", ["runs/typo", "./TRAP", "TRIP"])
@pytest.mark.parametrize("command", ["report", "run"])
def test_a_name_that_is_no_table_runs_no_experiment_file(refuses, tmp_path, command, asked):
    said = 'TABLE = hma.paper.table.Table(key="TRAP")'
    (tmp_path / "trap.py").write_text(
        f"import hma.paper.table, os; os.mkdir('{tmp_path}/ran')\n{said}"
    )
    message = refuses(command, asked, "--experiments", tmp_path)
    assert "is not a run" in message or f"must be one of 'TRAP', got {asked!r}" in message
    assert not (tmp_path / "ran").exists()


def test_only_the_file_of_the_table_is_run(run_hma, places, tmp_path):
    (tmp_path / "trap.py").write_text("raise SystemExit('ran')")
    for file in TOYS.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    ended = run_hma("report", "toy", "--budget", "smoke", "--experiments", tmp_path, *places[2:])
    assert ended.code == 0, ended.err
    assert "Toy" in ended.out


def test_a_table_without_a_written_key_is_known_by_its_file(tmp_path):
    (tmp_path / "mine.py").write_text("TABLE = make()")
    assert table_files(tmp_path) == {"mine": tmp_path / "mine.py"}


def test_an_experiment_file_that_is_no_python_is_named_with_its_line(refuses, tmp_path):
    (tmp_path / "mine.py").write_text("TABLE = (\n")
    assert f"{tmp_path}/mine.py, line 1: '(' was never closed" in refuses(
        "report", "mine", "--experiments", tmp_path
    )


def test_a_folder_without_experiments_is_named(refuses, tmp_path):
    message = refuses("tables", "--experiments", tmp_path)
    assert f"no experiment files; looked in {tmp_path}" in message


def test_a_record_of_other_settings_stops_a_run_before_it_starts(refuses, places, tmp_path):
    table = load_table(TOYS / "toy.py")
    results = Results(tmp_path / "results")
    cell = Cell("TOY", "smoke", "easy", "ERM", 0)
    results.keep(cell._replace(seed=1), measure(table, cell, None))
    message = refuses("run", "TOY", "--budget", "smoke", *places)
    assert "was measured with other settings than TOY has now: seed was 0, is 1 now" in message


def test_search_ranks_settings_and_says_where_to_write_them(run_hma, places):
    ended = run_hma("search", "TOY", "--only", "easy/ERM", "--budget", "smoke", *places)
    assert ended.code == 0, ended.err
    assert "best of 2 trials" in ended.out
    last = ended.out.splitlines()[-1]  # a long path is not broken into lines
    assert all(line.count(": ") < 3 for line in ended.out.splitlines())  # nothing after a score
    assert re.fullmatch(rf"to use the best, write into {TOYS}/toy.py: lr=0.\d+", last)


def test_a_row_that_left_the_package_is_counted_and_run_no_more(run_hma, refuses, tmp_path):
    places = ["--experiments", TOYS.parents[2] / "experiments", "--results", tmp_path / "results"]
    said = refuses("run", "M1-switches", "--only", "vote-added", *places)
    assert said == (
        "hma: vote-added is no longer part of hma and can only be reported; check out commit "
        "54d3a106 to measure it, or choose another row"
    )
    (line,) = [line for line in run_hma("tables", *places).out.splitlines() if "rates" in line]
    assert [word for word in line.split() if "/" in word] == ["0/2", "0/8", "0/24"]
    report = " ".join(run_hma("report", "rates", *places).out.split())
    assert "8 cells are missing; this measures them: hma run rates" in report


def test_results_pack_says_what_it_packed(run_hma, refuses, places, tmp_path):
    table, results = load_table(TOYS / "toy.py"), Results(tmp_path / "results")
    cell = Cell("TOY", "smoke", "easy", "ERM", 0)
    record = measure(table, cell, None)
    results.keep(cell, record)
    at = ["--results", results.folder]
    assert "table must be one of 'TOY', got 'TOO'" in refuses("results", "pack", "TOO", *at)
    said = " ".join(run_hma("results", "pack", *at).out.split())
    assert said == f"TOY: 1 records packed into {results.folder}/TOY.jsonl"
    said = " ".join(run_hma("results", "pack", "TOY", *at).out.split())
    assert said == f"no record in {results.folder} has a file of its own"
    (line,) = [line for line in run_hma("tables", *places).out.splitlines() if "TOY" in line]
    assert [word for word in line.split() if "/" in word] == ["1/8", "0/9", "0/27"]
    assert results.record(table, cell).to_json() == record.to_json()
