"""What records measure besides scores: permuted labels, edges that count, promises kept."""

import numpy as np
import pytest
from table_records import made_up_table, record_of, records_of

from hma.paper.report.formats import markdown, plain_text
from hma.paper.report.measures import coverages_of, edge_hits_of, permuted_of
from hma.paper.report.page import page
from hma.paper.report.summary import summarise
from hma.questions.audit import Audit, Change


def audited(score, lost):
    changes = {"labels permuted": {"accuracy": Change(score - lost, -lost)}}
    return Audit(9, 5, 0, "alone", 1, {"accuracy": score}, changes).to_json()


@pytest.fixture(scope="module")
def made():
    table = made_up_table(published={})
    records = {cell: record_of(table, cell) for cell in table.cells("small")}
    for cell, record in records.items():
        if cell.method == "hma":
            lost = 0.3 if cell.task == "left" else 0.02
            record.measures["audit"] = {
                split: audited(scores["alone"]["accuracy"], lost + more * cell.seed)
                for more, (split, scores) in zip((0.001, 0), record.tests.items(), strict=True)
            }
    return table, records


def test_the_change_is_the_mean_over_seeds_and_test_splits(made):
    table, records = made
    found = permuted_of(summarise(table, "small", records, {}))
    lost = np.mean([0.3 + 0.001 * seed / 2 for seed in range(10)])
    assert found["left", "hma"].mean == pytest.approx(-100 * lost)
    assert set(found) == {("left", "hma"), ("right", "hma")}


def test_every_format_says_on_how_many_tasks_the_memory_is_read(made):
    report = summarise(*made[:1], "small", made[1], {})
    for text in (plain_text(report), markdown([report]), page(report)):
        line = " ".join(text.split())
        assert "Does the model use its memory?" in line
        assert "at least 3 points are lost: hma on 1." in line


def test_a_table_without_the_measure_says_nothing_of_it(made):
    table = made[0]
    records = {cell: record_of(table, cell) for cell in table.cells("small")}
    assert "memory read" not in markdown([summarise(table, "small", records, {})])


HITS = {"plain": 0.2, "rma": 0.25, "hma": 0.6}


@pytest.fixture(scope="module")
def hits_made():
    table = made_up_table(published={})
    records = records_of(table)
    for cell, record in records.items():
        if cell.task == "left":
            hits = HITS[cell.method] + 0.01 * cell.seed * (cell.method == "hma")
            record.measures["edge hits"] = {"first": {"hits": hits, "chance": 0.15}}
    return table, records


def test_hits_are_held_to_chance_and_to_the_baseline(hits_made):
    found = edge_hits_of(summarise(hits_made[0], "small", hits_made[1], {}))
    assert set(found) == {("left", "first", name) for name in HITS}
    hits = 60 + np.arange(10)
    line = found["left", "first", "hma"]
    assert line.measured.mean == pytest.approx(hits.mean())
    assert line.measured.std == pytest.approx(hits.std(ddof=1))
    assert line.over_chance.difference == pytest.approx(hits.mean() - 15)
    assert line.over_baseline.difference == pytest.approx(hits.mean() - 20)
    assert line.over_baseline.low < line.over_baseline.difference < line.over_baseline.high
    assert found["left", "first", "plain"].over_baseline is None


def test_every_format_shows_hits(hits_made):
    report = summarise(hits_made[0], "small", hits_made[1], {})
    for text in (plain_text(report), markdown([report]), page(report)):
        line = " ".join(text.split())
        assert "Edges that count" in line
        assert "64.50 ± 3.03" in line
        assert "+44.50 (+42.70 to +46.30)" in line


def test_a_table_without_the_measure_says_nothing_of_hits(hits_made):
    report = summarise(hits_made[0], "small", records_of(hits_made[0]), {})
    assert "Edges that count" not in markdown([report])


@pytest.fixture(scope="module")
def coverage_made():
    table = made_up_table(published={})
    records = records_of(table)
    for cell, record in records.items():
        if (cell.task, cell.method) == ("left", "hma"):
            record.measures["coverage"] = {
                "asked": 0.9,
                "of scores": 0.89,
                "of sets": 0.9 + 0.01 * (cell.seed % 2),
                "labels in a set": 1.25,
                "of known rows accepted": 0.88,
                "of strange rows rejected": 0.5,
                "scores are within": cell.seed != 3,
                "accepted is within": cell.seed > 4,
            }
    return table, records


def test_shares_are_means_over_seeds_and_seeds_within_are_counted(coverage_made):
    found = coverages_of(summarise(coverage_made[0], "small", coverage_made[1], {}))
    assert list(found) == [("left", "hma")]
    line = found["left", "hma"]
    sets = 90 + np.arange(10) % 2
    assert line["asked"].mean == pytest.approx(90)
    assert (line["of sets"].mean, line["of sets"].std) == pytest.approx(
        (sets.mean(), sets.std(ddof=1))
    )
    names = ("labels in a set", "of known rows accepted", "of strange rows rejected")
    assert [line[name].mean for name in names] == pytest.approx([1.25, 88, 50])
    within = [line[name] for name in ("scores are within", "accepted is within")]
    assert [(one.mean, one.count) for one in within] == [(90, 10), (50, 10)]


def test_every_format_shows_coverage(coverage_made):
    report = summarise(coverage_made[0], "small", coverage_made[1], {})
    for text in (plain_text(report), markdown([report]), page(report)):
        line = " ".join(text.split())
        for said in ("Coverage, 90% asked for", "90.50 ± 0.53", "1.25", "9 of 10", "5 of 10"):
            assert said in line


def test_a_table_without_the_measure_says_nothing_of_coverage(coverage_made):
    report = summarise(coverage_made[0], "small", records_of(coverage_made[0]), {})
    assert "asked for" not in markdown([report])
