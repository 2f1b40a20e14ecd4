"""Records on disk: whole, of the right cell, and held by one process at a time."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hma.errors import UserError
from hma.io.files import HeldError
from hma.paper.cells import measure, work
from hma.paper.experiment_files import load_tables
from hma.paper.results import Failure, Results
from hma.paper.step_costs import STEP_COSTS
from hma.paper.table import Cell
from hma.training import Record
from hma.training.identity import config_of_record

ROOT = Path(__file__).parents[2]
CELL = Cell("TOY", "smoke", "easy", "HMA", 1)


@pytest.fixture(scope="module")
def record(toy):
    return measure(toy, CELL, None)


def test_work_leaves_a_record_and_nothing_else(toy, results, record):
    work(toy, CELL, results)
    files = [path for path in results.folder.rglob("*") if path.is_file()]
    files = [path for path in files if path.suffix != ".lock"]
    assert files == [results.folder / "TOY/smoke/easy/HMA/1.json"]
    kept = results.record(toy, CELL).repeatable()
    assert kept.pop("weights_sha256") is not None
    assert kept == {k: v for k, v in record.repeatable().items() if k != "weights_sha256"}


def test_a_record_says_what_it_is_of(toy, record):
    assert record.resolved["table"] == "TOY"
    assert record.resolved["budget"] == "smoke"
    assert record.resolved["settings"]["queue_size"] == 16
    assert set(record.tests) == {"near", "far"}
    assert set(record.tests["far"]) == {"batch", "batch-sorted", "alone"}


def test_a_finished_cell_is_not_run_again(toy, results, record):
    results.keep(CELL, record)
    before = results.path(CELL).stat().st_mtime_ns
    work(toy, CELL, results)
    assert results.path(CELL).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("resolved", "settings", "queue_size"), "settings.queue_size was"),
        (("resolved", "budget"), "budget was"),
        (("setup", "recipe", "lr"), "lr was"),
        (("seed",), "seed was"),
    ],
)
def test_a_record_of_other_settings_is_refused(toy, results, record, change, named):
    results.keep(CELL, record)
    values = json.loads(results.path(CELL).read_text())
    inner = values
    for name in change[:-1]:
        inner = inner[name]
    inner[change[-1]] = 7
    results.path(CELL).write_text(json.dumps(values))
    with pytest.raises(UserError, match=f"measured with other settings .*{named}"):
        results.record(toy, CELL)


def test_how_often_checkpoints_are_written_does_not_matter(toy, results, record):
    results.keep(CELL, record)
    values = json.loads(results.path(CELL).read_text())
    values["setup"]["recipe"]["checkpoint_every_seconds"] = 7.0
    del values["setup"]["recipe"]["drop_last"]  # a field that older records lack
    results.path(CELL).write_text(json.dumps(values))
    assert results.record(toy, CELL).seed == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"schema": 99}', "schema 99 was written by a newer hma"), ('{"sch', "is damaged")],
)
def test_a_record_that_cannot_be_read_names_its_file(toy, results, content, message):
    path = results.path(CELL)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        results.record(toy, CELL)
    assert str(path) in str(caught.value)


def test_a_failure_is_kept_until_the_cell_succeeds(toy, results, record):
    assert results.state(CELL) == "missing"
    results.keep_failure(CELL, Failure("bad luck", "line 1"))
    assert (results.state(CELL), results.failure(CELL)) == ("failed", Failure("bad luck", "line 1"))
    results.keep(CELL, record)
    assert (results.state(CELL), results.failure(CELL)) == ("done", None)


def test_a_failing_cell_is_written_down_with_its_error(toy, results):
    cell = CELL._replace(method="BROKEN")
    work(toy, cell, results)
    failure = results.failure(cell)
    assert failure.error == "ValueError: this row never works"
    assert "def broken" not in failure.error
    assert "Traceback" in failure.traceback


def test_a_cell_is_held_by_one_process_and_freed_by_its_death(results):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from hma.paper.results import Results; from hma.paper.table import Cell\n"
        f"with Results(Path(sys.argv[1])).claimed(Cell{tuple(CELL)!r}):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(results.folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(HeldError), results.claimed(CELL):
            pass
        other.kill()
        other.wait()
        with results.claimed(CELL):
            pass
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_leaves_no_half_record(results, record, monkeypatch):
    def full(self, data):
        with open("/dev/full", "wb") as file:
            file.write(data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="No space left"):
        results.keep(CELL, record)
    assert list(results.path(CELL).parent.iterdir()) == []


def test_records_of_one_table_are_all_of_it(toy, results, record):
    results.keep(CELL, record)
    found = results.records(toy, toy.cells("smoke"))
    assert {cell: type(one) for cell, one in found.items()} == {CELL: Record}


def test_records_are_read_under_the_names_of_today(toy, results, record):
    results.keep(CELL._replace(method="VOTE"), record)
    rows = {"VOTE": toy.rows["HMA"], "HMA": toy.rows["ERM"]}
    renamed = replace(toy, rows=toy.rows | rows, recorded_names={"VOTE": "HMA", "HMA": "ERM"})
    found = results.record(renamed, CELL._replace(method="VOTE"))
    assert (found.name, found.resolved["name"]) == ("easy/VOTE", "easy/VOTE")
    assert found.resolved["method"] == "VOTE"
    assert found.tests == record.tests
    with pytest.raises(UserError, match='method was "HMA", is "VOTE" now'):
        results.record(replace(renamed, recorded_names={}), CELL._replace(method="VOTE"))
    results.keep(CELL, record)  # at the place of a row that has its name now
    with pytest.raises(UserError, match="settings"):
        results.record(renamed, CELL)


def test_records_are_read_under_the_key_of_today(toy, results, record):
    results.keep(CELL._replace(table="NEW"), record)
    renamed = replace(toy, key="NEW", recorded_key="TOY")
    assert results.record(renamed, CELL._replace(table="NEW")).resolved["table"] == "NEW"
    with pytest.raises(UserError, match='table was "TOY", is "NEW" now'):
        results.record(replace(renamed, recorded_key=None), CELL._replace(table="NEW"))


def test_rows_of_a_comparison_are_read_under_the_names_of_today(toy, results, record):
    costs = {"rows": {"plain": {"step": [1.0]}, "old": {"step": [2.0]}}, "threads": 1}
    results.keep(CELL, replace(record, measures={STEP_COSTS: costs}))
    found = results.record(replace(toy, recorded_names={"now": "old"}), CELL).measures[STEP_COSTS]
    assert found == {"rows": {"plain": {"step": [1.0]}, "now": {"step": [2.0]}}, "threads": 1}
    assert list(found["rows"]) == ["plain", "now"]


COMMITTED = load_tables(ROOT / "experiments")


@pytest.mark.parametrize("key", COMMITTED)
def test_every_committed_record_is_of_a_row_and_valid(key):
    table, results = COMMITTED[key], Results(ROOT / "results")
    names = results.packed(key).cells()
    cells = [Cell(key, b, t, m, int(seed)) for b, t, m, seed in (n.split("/") for n in names)]
    for cell in cells:
        record = results.record(table, cell)
        assert record.resolved["method"] == cell.method
        assert cell.task in table.problems


def test_in_every_table_hma_is_the_papers_memory_and_voting_memory_ours():
    results, seen = Results(ROOT / "results"), set()
    for key, table in COMMITTED.items():
        for cell in sorted(results.packed(key).cells()):
            budget, task, method, seed = cell.split("/")
            part = method.rpartition("+")[2]
            if part in ("HMA", "VotingMemory"):
                record = results.record(table, Cell(key, budget, task, method, int(seed)))
                config = config_of_record(record.setup["method"]["config"])
                assert ("memory_size" in config) == (part == "VotingMemory"), (key, cell)
                seen.add((key, part))
    assert {("M1", "HMA"), ("M1", "VotingMemory"), ("T6", "HMA"), ("T6", "VotingMemory")} <= seen
