"""Cells: handed out each once, brought to their records by their rows, measured beside scores."""

from dataclasses import replace

import pytest
import torch
from silent_board import Silence

from hma.errors import UserError
from hma.methods import erm
from hma.methods.simple import neighbours
from hma.options.config import ConfigError
from hma.paper.cells import Ended, Moved, absent_data, measure, run, work
from hma.paper.results import Failure
from hma.paper.table import Cell, Row
from hma.training import evaluate, fit

CELL = Cell("TOY", "smoke", "easy", "ERM", 0)
OWN = Cell("TOY", "smoke", "easy", "OWN", 0)


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
    monkeypatch.setattr("hma.paper.cells.ASK_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("hma.paper.cells.LISTEN_SECONDS", 0.01)
    cell = toy.cells("smoke")[0]
    pool = Scripted({"ERM": ["busy", "busy", "done"]})
    assert run([cell], results, pool, Silence()).done == [cell]
    assert pool.started == [cell] * 3

    other = toy.cells("smoke")[1]
    finishes = Scripted({"HMA": ["busy"]}, after=lambda one, end: results.keep(one, record))
    outcome = run([other], results, finishes, Silence())
    assert (outcome.done, outcome.elsewhere) == ([], [other])


def two_stages(job):
    """Train twice, with what the seeds of a task share made once; stop once in between."""
    job.shared.mkdir(parents=True, exist_ok=True)
    with open(job.shared / "made", "a") as file:
        file.write(f"{job.cell.seed}\n")
    task = job.problem.task(job.cell.seed)

    def trained(name):
        learner = erm(job.problem.backbone)(task, job.cell.seed)
        seed, folder = job.cell.seed, job.folder / name
        return fit(learner, task, job.recipe, seed=seed, folder=folder, resolved={"stage": name})

    trained("first")
    if job.settings["stop"] and not (job.folder / "stopped").exists():
        (job.folder / "stopped").touch()
        raise KeyboardInterrupt
    return trained("second")


def with_work(toy, **settings):
    row = Row(work=two_stages, settings={"stop": False, **settings}, what="two stages")
    smoke = replace(toy.budgets["smoke"], methods=("*",))
    whole = {name: replace(b, rows=None) for name, b in toy.budgets.items()} | {"smoke": smoke}
    return replace(toy, rows={**toy.rows, "OWN": row}, budgets=whole)


def test_a_row_with_work_of_its_own_leaves_a_record_like_any_other(toy, results):
    table = with_work(toy)
    work(table, OWN, results)
    record = results.record(table, OWN)
    assert record.resolved["stage"] == "second"
    assert record.resolved["settings"] == {"stop": False}
    assert record.setup["recipe"] == table.recipe(OWN).to_json()
    assert not results.work_folder(OWN).exists()
    with pytest.raises(UserError, match=r"settings.stop was false, is true now"):
        results.record(with_work(toy, stop=True), OWN)


def test_an_interrupted_work_goes_on_from_its_folder_to_the_same_record(toy, results):
    table = with_work(toy, stop=True)
    with pytest.raises(KeyboardInterrupt):
        work(table, OWN, results)
    assert results.state(OWN) == "missing"
    first = results.work_folder(OWN) / "first" / "record.json"
    assert first.exists()
    work(table, OWN, results)
    alone = measure(with_work(toy), OWN, None)
    found = results.record(table, OWN)
    assert found.tests == alone.tests
    assert found.epochs == alone.epochs


def test_the_seeds_of_a_task_share_a_folder(toy, results):
    table = with_work(toy)
    for seed in (0, 1):
        work(table, OWN._replace(seed=seed), results)
    made = [path.read_text() for path in results.folder.rglob("made")]
    assert made == ["0\n1\n"]


def test_a_failing_work_is_the_failure_of_its_cell(toy, results):
    def broken(job):
        raise UserError("no such luck")

    table = replace(with_work(toy), rows={**toy.rows, "OWN": Row(work=broken)})
    work(table, OWN, results)
    assert results.failure(OWN).error == "no such luck"


def test_absent_data_is_seen_before_any_work(toy):
    table = with_work(toy)
    cell = OWN._replace(task="absent")
    assert "the toy is missing" in absent_data(table, [cell])["absent"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row(), "row OWN: give it one of build, work and retired"),
        (Row(build=erm, work=two_stages), "row OWN: give it one of build, work and retired"),
        (
            Row(work=two_stages, keep_weights=True),
            "row OWN: task, measure, keep_weights",
        ),
    ],
)
def test_a_row_has_one_way_to_its_record(toy, row, message):
    table = with_work(toy)
    with pytest.raises(ConfigError, match=message):
        replace(table, rows={**table.rows, "OWN": row})


def test_work_sees_all_rows(toy):
    with pytest.raises(ConfigError, match=r"budget small: rows must be None, OWN has work"):
        replace(toy, rows={**toy.rows, "OWN": Row(work=two_stages)})


def test_a_suite_that_no_paper_has_has_a_full_budget(toy):
    budgets = {**toy.budgets, "full": toy.budgets["paper"]}
    del budgets["paper"]
    table = replace(toy, budgets=budgets)
    assert len(table.cells("full")) == len(toy.cells("paper"))
    with pytest.raises(UserError, match="budget must be one of 'smoke', 'small', 'full'"):
        table.cells("paper")


def first_logit(learner, task):
    batch = task.tests["near"].batch(torch.arange(1))
    with torch.no_grad():
        logits = learner.predict(batch)
    return {"logits": logits[0].tolist(), "drawn": torch.rand(1).item(), "nothing": float("nan")}


def changed(toy, **changes):
    return replace(toy, rows={**toy.rows, "ERM": replace(toy.rows["ERM"], **changes)})


def rebuilt(table):
    row, problem = table.rows["ERM"], table.problems["easy"]
    task = problem.task(0)
    return row.build(problem.backbone)(task, 0), task


def test_what_a_row_measures_is_in_its_record_and_the_same_again(toy, results, tmp_path):
    table = changed(toy, measure=first_logit)
    work(table, CELL, results)
    found = results.record(table, CELL).measures
    results.path(CELL).unlink()
    torch.rand(7)
    work(table, CELL, results)
    assert results.record(table, CELL).measures == found
    assert found["nothing"] is None


def test_kept_weights_are_those_that_were_tested(toy, results):
    table = changed(toy, measure=first_logit, keep_weights=True)
    work(table, CELL, results)
    record = results.record(table, CELL)
    learner, task = rebuilt(table)
    learner.module.load_state_dict(results.weights(table, CELL))
    learner.module.eval()
    assert first_logit(learner, task)["logits"] == record.measures["logits"]
    scores = evaluate(learner, task.tests["near"], batch_size=16)
    assert scores["alone"]["accuracy"] == record.tests["near"]["alone"]["accuracy"]


def test_a_row_that_is_fitted_at_once_measures_and_keeps_its_weights_too(toy, results):
    table = changed(toy, build=neighbours, measure=first_logit, keep_weights=True)
    work(table, CELL, results)
    measures = results.record(table, CELL).measures
    assert {"validation_loss", "chosen", "fitted_rows", "logits"} <= measures.keys()
    learner, task = rebuilt(table)
    learner.module.load_state_dict(results.weights(table, CELL))
    assert first_logit(learner, task)["logits"] == measures["logits"]


def test_a_row_that_measures_nothing_has_the_record_it_always_had(toy, results):
    work(toy, CELL, results)
    assert "measures" not in results.path(CELL).read_text()
    assert not results.weights_path(CELL).exists()
    with pytest.raises(UserError, match=r"was measured without keep_weights=True; move .*0.json"):
        results.weights(toy, CELL)


def test_damaged_weights_are_refused(toy, results):
    table = changed(toy, keep_weights=True)
    work(table, CELL, results)
    data = bytearray(results.weights_path(CELL).read_bytes())
    data[-1] ^= 1
    results.weights_path(CELL).write_bytes(data)
    with pytest.raises(UserError, match="does not match its recorded hash; move"):
        results.weights(table, CELL)


def test_a_cell_killed_between_weights_and_record_ends_with_both(toy, results, monkeypatch):
    table = changed(toy, keep_weights=True)

    def killed(record, path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("hma.paper.results.Record.write", killed)
        with pytest.raises(KeyboardInterrupt):
            work(table, CELL, results)
    assert results.state(CELL) == "missing"
    work(table, CELL, results)
    assert results.weights(table, CELL)


def test_what_is_no_json_is_the_failure_of_the_cell(toy, results):
    work(changed(toy, measure=lambda learner, task: {"odd": object()}), CELL, results)
    assert "what TOY smoke easy/ERM seed 0 measures must be JSON" in results.failure(CELL).error
