"""Whole runs in a table: every candidate is shown, the deployed one is held to the simple ones.

The oracle makes answers for single test rows and computes every number from them with numpy.
"""

import math

import numpy as np
import pytest
from table_records import made_up_table, record_of

from hma.paper.report.candidates import deployments
from hma.paper.report.documents import documents
from hma.paper.report.formats import latex, markdown, plain_text
from hma.paper.report.page import page
from hma.paper.report.summary import summarise
from hma.paper.results import Results
from hma.paper.table import Budget, Row
from hma.report.numbers import MINUS
from hma.training import Recipe

ROWS = 50
SIMPLE = {"plain": False, "memory": False, "logistic": True, "boosting": True}
TITLES = {"plain": "plain backbone", "memory": "memory", "logistic": "logistic regression"}
SEEDS = (0, 1, 2)


def answers(task, seed):
    """Return candidate -> (whether each row is right, its loss), the deployed model first."""
    draw = np.random.default_rng([len(task), seed])
    level = {"deployed": 0.8 if task == "left" else 0.4, "plain": 0.7, "memory": 0.75}
    level |= {"logistic": 0.6, "boosting": 0.78}
    return {
        name: ((draw.random(ROWS) < chance).astype(float), draw.exponential(1 / chance, ROWS))
        for name, chance in level.items()
        if not (name == "boosting" and task == "right")
    }


def error(values):
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def whole_record_of(table, cell):
    said = answers(cell.task, cell.seed)
    right, loss = said.pop("deployed")
    own = {"accuracy": float(right.mean()), "nll": float(loss.mean())}
    candidates = {
        name: {
            "title": TITLES.get(name, f"gradient {name}"),
            "simple": SIMPLE[name],
            "share": 1 / len(said),
            "validation_loss": 1.0,
            "seconds": 2.0,
            "scores": {"accuracy": float(r.mean()), "nll": float(v.mean())},
            "errors": {"accuracy": error(r), "nll": error(v)},
            "difference_errors": {"accuracy": error(right - r), "nll": error(loss - v)},
        }
        for name, (r, v) in said.items()
    }
    return record_of(
        table,
        cell,
        contexts=["alone"],
        tests={"test": {"alone": own}},
        measures={"candidates": candidates, "scores": own},
    )


@pytest.fixture
def made():
    """Return a table of whole runs, three seeds, and its records."""
    row = Row(work=lambda job: None, what="what hma train deploys")
    table = made_up_table(
        rows={"deployed": row},
        baseline="deployed",
        published={},
        seeds=SEEDS,
        budgets={
            name: Budget(what="all of it", recipe=Recipe(steps=1), seeds=len(SEEDS))
            for name in ("smoke", "small", "full")
        },
    )
    return table, {cell: whole_record_of(table, cell) for cell in table.cells("small")}


def compared(task, name, place):
    """Return difference, error over seeds and error over rows of deployed minus a candidate."""
    apart = []
    for seed in SEEDS:
        said = answers(task, seed)
        apart.append(said["deployed"][place] - said[name][place])
    means = [float(one.mean()) for one in apart]
    rows = math.sqrt(sum(error(one) ** 2 for one in apart)) / len(apart)
    return float(np.mean(means)), float(np.std(means, ddof=1) / math.sqrt(len(means))), rows


@pytest.mark.parametrize(("metric", "place", "scale"), [("accuracy", 0, 100), ("nll", 1, 1)])
@pytest.mark.parametrize("task", ["left", "right"])
def test_the_deployed_model_is_compared_with_the_best_simple_row(made, task, metric, place, scale):
    report = summarise(made[0], "small", made[1], {})
    found = deployments(report)[metric][task]
    simple = [name for name in answers(task, 0) if SIMPLE.get(name)]
    better = max if metric == "accuracy" else min
    best = better(simple, key=lambda n: np.mean([answers(task, s)[n][place].mean() for s in SEEDS]))
    assert found.best_simple == best
    expected = [scale * value for value in compared(task, best, place)]
    assert [found.difference, found.seeds_error, found.rows_error] == pytest.approx(expected)
    ahead = expected[0] if metric == "accuracy" else -expected[0]
    assert found.holds(found.rows_error) == (ahead + expected[2] >= 0)


def test_a_miss_is_said_with_its_size(made):
    report = summarise(made[0], "small", made[1], {})
    missed = deployments(report)["accuracy"]["right"]
    assert not missed.holds(missed.rows_error)
    text = " ".join(plain_text(report, width=400).split())
    said = f"not on right ({MINUS}{-missed.difference:.2f}, standard error {missed.rows_error:.2f})"
    assert said in text
    assert "or better on 1 of 2 by the test rows" in text


def test_every_format_shows_every_candidate_and_a_hole_where_there_is_none(made):
    report = summarise(made[0], "small", made[1], {})
    for text in (plain_text(report, width=200), markdown([report]), latex(report), page(report)):
        for name in ("logistic regression", "gradient boosting", "plain backbone"):
            assert name in text
    assert ("right", "boosting") not in report.entries
    assert report.entries["left", "boosting"].measured.count == 3
    assert (report.cells, report.records) == (6, 6)
    assert report.costs["logistic"].seconds == 2.0


def test_without_a_simple_row_nothing_is_held(made):
    table, records = made
    for record in records.values():
        for one in record.measures["candidates"].values():
            one["simple"] = False
    report = summarise(table, "small", records, {})
    found = deployments(report)["accuracy"]["left"]
    assert (found.best_simple, found.difference, found.holds(found.rows_error)) == (None,) * 3
    assert "or better on 0 of 0 by the test rows" in " ".join(plain_text(report, 400).split())


def test_the_document_has_a_drawing_of_all_candidates(made, tmp_path):
    table, records = made
    results = Results(tmp_path)
    for cell, record in records.items():
        results.keep(cell, record)
    found = documents([table], results)
    assert set(found) == {"T9.md", "T9-small.svg", "README.md"}
    assert "boosting, measured" in found["T9-small.svg"]
    assert "6 of 6" in found["README.md"]
