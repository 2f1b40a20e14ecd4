"""Hits of the edges that count, from the records alone."""

import numpy as np
import pytest
from table_records import made_up_table, records_of

from hma.report.table import markdown, page, plain_text, summarise

HITS = {"plain": 0.2, "rma": 0.25, "hma": 0.6}


@pytest.fixture(scope="module")
def made():
    table = made_up_table(published={})
    records = records_of(table)
    for cell, record in records.items():
        if cell.task == "left":
            hits = HITS[cell.method] + 0.01 * cell.seed * (cell.method == "hma")
            record.measures["edge hits"] = {"first": {"hits": hits, "chance": 0.15}}
    return table, records


def test_hits_are_held_to_chance_and_to_the_baseline(made):
    found = summarise(made[0], "small", made[1], {}).edge_hits
    assert set(found) == {("left", "first", name) for name in HITS}
    hits = 60 + np.arange(10)
    line = found["left", "first", "hma"]
    assert line.measured.mean == pytest.approx(hits.mean())
    assert line.measured.std == pytest.approx(hits.std(ddof=1))
    assert line.over_chance.difference == pytest.approx(hits.mean() - 15)
    assert line.over_baseline.difference == pytest.approx(hits.mean() - 20)
    assert line.over_baseline.low < line.over_baseline.difference < line.over_baseline.high
    assert found["left", "first", "plain"].over_baseline is None


def test_every_format_shows_them(made):
    report = summarise(made[0], "small", made[1], {})
    for text in (plain_text(report), markdown([report]), page(report)):
        line = " ".join(text.split())
        assert "Edges that count" in line
        assert "64.50 ± 3.03" in line
        assert "+44.50 (+42.70 to +46.30)" in line


def test_a_table_without_the_measure_says_nothing_of_it(made):
    report = summarise(made[0], "small", records_of(made[0]), {})
    assert "Edges that count" not in markdown([report])
