"""Handing out cells: each once, whatever becomes of the others."""

import pytest
from silent_board import Silence

from hma.tables import Cell, measure, run
from hma.tables.run_cells import Ended, Moved


class Scripted:
    """A pool whose cells end as a script says, each method having its list of ends."""

    def __init__(self, script, size=2, after=lambda cell, end: None):
        self.script, self.size, self.after = script, size, after
        self.started, self.running, self.most = [], [], 0

    def start(self, cell):
        self.started.append(cell)
        self.running.append(cell)
        self.most = max(self.most, len(self.running))

    def events(self, seconds):
        if not self.running:
            return []
        cell = self.running.pop(0)
        ends = self.script.get(cell.method, ["done"])
        end = ends.pop(0) if len(ends) > 1 else ends[0]
        self.after(cell, end)
        return [Moved(cell, 1, 2), Ended(cell, end, "why")]

    def stop(self):
        pass

    def close(self):
        self.closed = True


@pytest.fixture
def record(toy):
    return measure(toy, Cell("TOY", "smoke", "easy", "ERM", 0), None)


def test_every_missing_cell_is_run_once_and_no_more_at_a_time_than_fit(toy, results):
    pool, board = Scripted({}, size=3), Silence()
    outcome = run(toy.cells("smoke"), results, pool, board)
    assert pool.started == list(toy.cells("smoke")) == outcome.done
    assert pool.most == 3
    assert (pool.closed, board.closed, board.counts) == (True, True, (8, 8))


def test_finished_cells_are_left_alone_and_failed_ones_tried_again(toy, results, record):
    from hma.tables import Failure

    first, second, *rest = toy.cells("smoke")
    results.keep(first, record)
    results.keep_failure(second, Failure("before"))
    pool = Scripted({})
    run([first, second, *rest], results, pool, Silence())
    assert pool.started == [second, *rest]


def test_a_failing_cell_does_not_stop_the_others(toy, results):
    outcome = run(toy.cells("smoke"), results, Scripted({"HMA": ["failed"]}), Silence())
    assert set(outcome.failed.values()) == {"why"}
    assert [cell.method for cell in outcome.done] == ["ERM"] * 4


def test_missing_data_is_asked_for_once_per_task(toy, results):
    pool = Scripted({"ERM": ["absent"]}, size=1)
    outcome = run(toy.cells("smoke"), results, pool, Silence())
    assert outcome.absent == {"easy": "why", "other": "why"}
    assert [cell.task for cell in pool.started] == ["easy", "other"]


def test_a_cell_that_another_runner_has_is_asked_for_again(toy, results, record, monkeypatch):
    monkeypatch.setattr("hma.tables.run_cells.ASK_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("hma.tables.run_cells.LISTEN_SECONDS", 0.01)
    cell = toy.cells("smoke")[0]
    pool = Scripted({"ERM": ["busy", "busy", "done"]})
    assert run([cell], results, pool, Silence()).done == [cell]
    assert pool.started == [cell] * 3

    other = toy.cells("smoke")[1]
    finishes = Scripted({"HMA": ["busy"]}, after=lambda one, end: results.keep(one, record))
    outcome = run([other], results, finishes, Silence())
    assert (outcome.done, outcome.elsewhere) == ([], [other])
