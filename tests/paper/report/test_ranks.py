"""Ranks of rows over tasks against scipy, and the drawing that shows them."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from table_records import made_up_table, no_data, record_of

from hma.backbones import mlp
from hma.options.config import ConfigError
from hma.paper.report.documents import documents
from hma.paper.report.formats import markdown, plain_text
from hma.paper.report.ranks import rank_chart, ranks_of
from hma.paper.report.summary import summarise
from hma.paper.results import Results
from hma.paper.table import Problem

TASKS = tuple(f"task-{number}" for number in range(7))


@pytest.fixture(scope="module")
def table():
    return made_up_table(
        problems={t: Problem(task=no_data, backbone=lambda task: mlp(2)) for t in TASKS},
        published={},
        ranked="hma",
    )


@pytest.fixture(scope="module")
def records(table):
    return {cell: record_of(table, cell) for cell in table.cells("small")}


@pytest.fixture(scope="module")
def means(table, records):
    """Return row -> mean score on each task, straight from the records."""
    found = {}
    for row in table.rows:
        for task in TASKS:
            held = [r for c, r in records.items() if (c.task, c.method) == (task, row)]
            own = [next(iter(split)) for split in (r.tests["first"] for r in held)]
            values = [
                np.mean([r.tests[s][context]["accuracy"] for s in r.tests])
                for r, context in zip(held, own, strict=True)
            ]
            found.setdefault(row, []).append(100 * np.mean(values))
    return {row: np.array(values) for row, values in found.items()}


def test_ranks_and_tests_are_those_of_scipy(table, records, means):
    ranks = ranks_of(summarise(table, "small", records, {}))
    placed = stats.rankdata([-means[row] for row in means], axis=0).mean(axis=1)
    for row, rank in zip(means, placed, strict=True):
        assert ranks.rows[row].rank == pytest.approx(rank)
    for row in ("plain", "rma"):
        apart = (means["hma"] - means[row]).round(9)
        assert ranks.rows[row].p == pytest.approx(stats.wilcoxon(apart).pvalue)
        assert (ranks.rows[row].ahead, ranks.rows[row].behind) == (
            (apart > 0).sum(),
            (apart < 0).sum(),
        )
    assert list(ranks.rows) == sorted(ranks.rows, key=lambda row: ranks.rows[row].rank)


def test_a_row_harms_where_it_is_behind_the_baseline_by_more_than_its_error(table, records):
    ranks = ranks_of(summarise(table, "small", records, {}))
    expected = []
    for task in TASKS:
        entries = summarise(table, "small", records, {}).entries
        base, own = entries[task, "plain"].scores, entries[task, "rma"].scores
        apart = np.array([own[seed] - base[seed] for seed in own])
        if apart.mean() + stats.sem(apart) < 0:
            expected.append(task)
    assert ranks.rows["rma"].harmed == tuple(expected)
    assert ranks.rows["plain"].harmed == ()


def test_a_task_with_a_hole_is_not_ranked(table, records):
    hole = next(cell for cell in records if (cell.task, cell.method) == ("task-3", "rma"))
    held = {cell: record for cell, record in records.items() if cell != hole}
    ranks = ranks_of(summarise(table, "small", held, {}))
    assert ranks.tasks == tuple(task for task in TASKS if task != "task-3")
    assert f"Ranks of mean scores over {len(TASKS) - 1} tasks" in " ".join(
        plain_text(summarise(table, "small", held, {})).split()
    )


def test_a_row_without_any_record_is_named_and_the_others_are_ranked(table, records):
    held = {cell: record for cell, record in records.items() if cell.method != "rma"}
    report = summarise(table, "small", held, {})
    ranks = ranks_of(report)
    assert ranks.tasks == TASKS
    assert ranks.rows.keys() == table.rows.keys() - {"rma"}
    assert "Not ranked, for want of any record: rma." in " ".join(plain_text(report).split())


def test_a_table_that_ranks_nothing_has_no_ranks(table, records):
    report = summarise(replace(table, ranked=None), "small", records, {})
    assert ranks_of(report) is None
    assert "Mean ranks" not in markdown([report])


def test_the_drawing_has_every_row_at_its_rank(table, records):
    report = summarise(table, "small", records, {})
    drawing = str(rank_chart(report, ranks_of(report)))
    for row, one in ranks_of(report).rows.items():
        assert f">{row} {one.rank:.2f}</text>" in drawing
    places = [float(x) for x in re.findall(r'd="M([\d.]+) ', drawing)]
    ranks = [one.rank for one in ranks_of(report).rows.values()]
    assert np.corrcoef(places, ranks)[0, 1] == pytest.approx(1)


def test_the_document_shows_the_drawing(table, records, tmp_path):
    results = Results(tmp_path)
    for cell, record in records.items():
        results.keep(cell, record)
    found = documents([table], results)
    assert "(T9-small-ranks.svg)" in found["T9.md"]
    assert found["T9-small-ranks.svg"].startswith("<svg xmlns")


def test_tables_may_share_a_document(table, records, tmp_path):
    results, other = Results(tmp_path), replace(table, key="T10", page="both", ranked=None)
    for cell, record in records.items():
        results.keep(cell, record)
        moved = cell._replace(table="T10")
        results.keep(moved, record_of(other, moved))
    found = documents([replace(table, page="both"), other], results)
    first, second = found["both.md"].split("# T9: Made up")
    assert first.startswith("# T10: Made up")
    assert "Mean ranks over tasks" in second
    assert "[T9](both.md)" in found["README.md"]
    assert "[T10](both.md)" in found["README.md"]


def test_the_row_that_is_ranked_must_be_one(table):
    with pytest.raises(ConfigError, match="ranked must be one of 'plain', 'rma', 'hma', got 'hna'"):
        replace(table, ranked="hna")
