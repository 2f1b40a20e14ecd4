"""Rows that come to their record by themselves: interrupted, resumed, defined as other cells."""

from dataclasses import replace

import pytest

from hma.config import ConfigError
from hma.errors import UserError
from hma.methods import erm
from hma.tables import Cell, Row, absent_data, measure, work
from hma.training import fit

CELL = Cell("TOY", "smoke", "easy", "OWN", 0)


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
    work(table, CELL, results)
    record = results.record(table, CELL)
    assert record.resolved["stage"] == "second"
    assert record.resolved["settings"] == {"stop": False}
    assert record.setup["recipe"] == table.recipe(CELL).to_json()
    assert not results.work_folder(CELL).exists()
    with pytest.raises(UserError, match=r"settings.stop was false, is true now"):
        results.record(with_work(toy, stop=True), CELL)


def test_an_interrupted_work_goes_on_from_its_folder_to_the_same_record(toy, results):
    table = with_work(toy, stop=True)
    with pytest.raises(KeyboardInterrupt):
        work(table, CELL, results)
    assert results.state(CELL) == "missing"
    first = results.work_folder(CELL) / "first" / "record.json"
    assert first.exists()
    work(table, CELL, results)
    alone = measure(with_work(toy), CELL, None)
    found = results.record(table, CELL)
    assert found.tests == alone.tests
    assert found.epochs == alone.epochs


def test_the_seeds_of_a_task_share_a_folder(toy, results):
    table = with_work(toy)
    for seed in (0, 1):
        work(table, CELL._replace(seed=seed), results)
    made = [path.read_text() for path in results.folder.rglob("made")]
    assert made == ["0\n1\n"]


def test_a_failing_work_is_the_failure_of_its_cell(toy, results):
    def broken(job):
        raise UserError("no such luck")

    table = replace(with_work(toy), rows={**toy.rows, "OWN": Row(work=broken)})
    work(table, CELL, results)
    assert results.failure(CELL).error == "no such luck"


def test_absent_data_is_seen_before_any_work(toy):
    table = with_work(toy)
    cell = CELL._replace(task="absent")
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
