"""What a memory loses when the labels of its stored rows are permuted, from the records alone."""

import numpy as np
import pytest
from table_records import made_up_table, record_of

from hma.questions.audit import Audit, Change
from hma.report.table import markdown, page, plain_text, summarise


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
    found = summarise(table, "small", records, {}).permuted
    lost = np.mean([0.3 + 0.001 * seed / 2 for seed in range(10)])
    assert found["left", "hma"].mean == pytest.approx(-100 * lost)
    assert set(found) == {("left", "hma"), ("right", "hma")}


def test_every_format_says_on_how_many_tasks_the_memory_is_read(made):
    report = summarise(*made[:1], "small", made[1], {})
    for text in (plain_text(report), markdown([report]), page(report)):
        line = " ".join(text.split())
        assert "Is the memory read?" in line
        assert "at least 3 points are lost: hma on 1." in line


def test_a_table_without_the_measure_says_nothing_of_it(made):
    table = made[0]
    records = {cell: record_of(table, cell) for cell in table.cells("small")}
    assert "memory read" not in markdown([summarise(table, "small", records, {})])
