"""Cells in processes: the same records as in this one, whatever is killed and whoever helps."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from silent_board import Silence

from hma.io.files import HeldError
from hma.paper.cells import measure, run
from hma.paper.processes import Processes
from hma.paper.results import Results
from hma.paper.table import Cell

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ONLY = "easy/ERM,easy/HMA"

LAST_WORD = """
import os, signal, sys, threading
from pathlib import Path
from hma.paper.cell_process import serve
from hma.paper.table import Cell

class Impatient:
    def send(self, word):
        if word[0] != "moved":
            os.kill(os.getpid(), signal.SIGTERM)
            print(word[0])
    def poll(self, seconds):
        threading.Event().wait()

cell = Cell("TOY", "smoke", "easy", "ERM", 0)
serve(Impatient(), Path(sys.argv[1]), Path(sys.argv[2]), cell)
"""


def same_again(record):
    """Return what must be the same: files that tests write may make the checkout unclean."""
    return {name: value for name, value in record.repeatable().items() if name != "git_commit"}


def records_of(results, table, cells):
    return {cell: same_again(results.record(table, cell)) for cell in cells}


def hma_run(toy_file, results, *options):
    command = [
        sys.executable,
        "-m",
        "hma",
        "run",
        "TOY",
        "--budget",
        "smoke",
        "--only",
        ONLY,
        *options,
    ]
    places = ["--results", str(results.folder), "--experiments", str(toy_file.parent)]
    return subprocess.Popen(
        [*command, *places],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def undisturbed(toy, tmp_path_factory):
    """Records of the cells, made one after the other in this process."""
    found = {}
    for cell in toy.cells("smoke", ONLY):
        record = measure(toy, cell, tmp_path_factory.mktemp("cells") / "one" / "two" / "three")
        found[cell] = same_again(record)
    return found


@pytest.mark.slow
def test_two_processes_leave_the_records_of_one(toy, toy_file, results, undisturbed):
    cells = toy.cells("smoke", ONLY)
    outcome = run(cells, results, Processes(2, toy_file, results), Silence())
    assert sorted(outcome.done) == sorted(cells)
    assert records_of(results, toy, cells) == undisturbed


@pytest.mark.slow
def test_one_failing_row_and_missing_data_leave_the_rest_done(toy, toy_file, results):
    cells = toy.cells("smoke", "easy,absent", seeds=1)
    board = Silence()
    outcome = run(cells, results, Processes(2, toy_file, results), board)
    assert [cell.method for cell in outcome.done] == ["ERM", "HMA"]
    assert list(outcome.failed.values()) == ["ValueError: this row never works"]
    assert "looked for /nowhere/toy" in outcome.absent["absent"]
    assert ("BROKEN", "easy", "failed") in board.ends


def wait_for_a_step(process, results, seen):
    """Wait until a checkpoint is written that was not there before; returns all there were."""
    while process.poll() is None:
        now = set((results.folder / ".unfinished").glob("TOY/**/checkpoints/*"))
        if now - seen:
            return seen | now
        time.sleep(0.01)
    return seen


@pytest.mark.slow
def test_killed_at_any_step_a_run_ends_with_the_same_records(toy, toy_file, results, undisturbed):
    cells, seen = toy.cells("smoke", ONLY), set()
    for _ in range(2):
        process = hma_run(toy_file, results, "--workers", "2")
        seen = wait_for_a_step(process, results, seen)
        process.kill()
        process.communicate()
    assert seen
    run(cells, results, Processes(2, toy_file, results), Silence())
    assert records_of(results, toy, cells) == undisturbed


@pytest.mark.slow
def test_two_runners_share_the_cells_and_both_end_well(toy, toy_file, results, undisturbed):
    cells = toy.cells("smoke", ONLY)

    def one_of_them(number):
        return run(cells, results, Processes(1, toy_file, results), Silence())

    with ThreadPoolExecutor() as both:
        outcomes = list(both.map(one_of_them, range(2)))
    for outcome in outcomes:
        assert sorted(outcome.done + outcome.elsewhere) == sorted(cells)
    assert records_of(results, toy, cells) == undisturbed


@pytest.mark.slow
def test_ctrl_c_ends_with_one_line_and_130(toy, toy_file, results):
    process = hma_run(toy_file, results)
    while not results.folder.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "hma: stopped; the same command goes on"
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.5])
def test_ctrl_c_while_processes_start_is_one_line(toy_file, results, tmp_path, seconds):
    out, errors = tmp_path / "out", tmp_path / "errors"
    places = ["--results", str(results.folder), "--experiments", str(toy_file.parent)]
    command = ["-u", "-m", "hma", "run", "TOY", "--budget", "smoke", "--workers", "2", *places]
    with out.open("w") as to, errors.open("w") as errors_to:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=ENVIRONMENT,
            stdout=to,
            stderr=errors_to,
            start_new_session=True,  # a terminal sends Ctrl-C to the whole group
        )
    while not out.stat().st_size and process.poll() is None:
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
    deadline = time.monotonic() + 60
    while group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    said = errors.read_text()
    assert "Traceback" not in said
    assert sum(line.startswith("hma: ") for line in said.splitlines()) == 1


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_request_to_end_while_the_last_word_is_said_changes_nothing(toy_file, results):
    said = subprocess.run(
        [sys.executable, "-c", LAST_WORD, str(toy_file), str(results.folder)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, "done\n", "")


@pytest.mark.slow
def test_a_process_that_dies_is_a_failed_cell_that_goes_on_later(
    toy, toy_file, results, undisturbed
):
    first, *rest = toy.cells("smoke", "easy/HMA,easy/ERM", seeds=1)
    pool = Processes(2, toy_file, results)
    pool.start(first)
    os.kill(pool._running[first].process.pid, signal.SIGKILL)
    events = []
    while not events:
        events = [event for event in pool.events(1.0) if hasattr(event, "end")]
    assert events[0].end == "failed"
    assert "signal 9 (SIGKILL)" in events[0].message
    assert results.state(first) == "failed"
    outcome = run([first, *rest], results, pool, Silence())
    assert sorted(outcome.done) == sorted([first, *rest])
    assert same_again(results.record(toy, first)) == undisturbed[first]


LONG = """
from dataclasses import replace
from pathlib import Path

from hma.paper.experiment_files import load_table

TOY = load_table(Path({toy!r}))
ENDLESS = replace(TOY.rows["ERM"], recipe={{"epochs": 10**6}})
TABLE = replace(TOY, key="LONG", rows={{**TOY.rows, "ERM": ENDLESS}})
"""


@pytest.mark.slow
def test_a_process_ends_with_the_runner_that_was_killed(toy_file, results, tmp_path):
    (tmp_path / "long.py").write_text(LONG.format(toy=str(toy_file)))
    command = [
        sys.executable,
        "-m",
        "hma",
        "run",
        "LONG",
        "--budget",
        "smoke",
        "--only",
        "easy/ERM",
    ]
    places = ["--results", str(results.folder), "--experiments", str(tmp_path), "--seeds", "1"]
    runner = subprocess.Popen([*command, *places], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    cell = Cell("LONG", "smoke", "easy", "ERM", 0)
    checkpoints = results.work_folder(cell) / "checkpoints"
    deadline = time.monotonic() + 60
    while not (checkpoints.exists() and any(checkpoints.iterdir())):
        assert time.monotonic() < deadline, "the cell did not start"
        time.sleep(0.1)
    with pytest.raises(HeldError), results.claimed(cell):
        pass
    runner.kill()
    runner.wait()
    while time.monotonic() < deadline:
        try:
            with results.claimed(cell):
                return
        except HeldError:
            time.sleep(0.1)
    pytest.fail("the process of the cell lives on")


def test_no_workers_is_refused(toy_file, tmp_path):
    from hma.errors import UserError

    with pytest.raises(UserError, match="workers must be at least 1, got 0"):
        Processes(0, toy_file, Results(tmp_path))
