"""What thresholds promised and kept, from the records alone."""

import numpy as np
import pytest
from table_records import made_up_table, records_of

from hma.report.table import markdown, page, plain_text, summarise


@pytest.fixture(scope="module")
def made():
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


def test_shares_are_means_over_seeds_and_seeds_within_are_counted(made):
    found = summarise(made[0], "small", made[1], {}).coverages
    assert list(found) == [("left", "hma")]
    line = found["left", "hma"]
    sets = 90 + np.arange(10) % 2
    assert line.asked == pytest.approx(90)
    assert (line.sets.mean, line.sets.std) == pytest.approx((sets.mean(), sets.std(ddof=1)))
    assert (line.set_size.mean, line.accepted.mean, line.rejected.mean) == pytest.approx(
        (1.25, 88, 50)
    )
    assert (line.sets_within, line.accepted_within) == (9, 5)


def test_every_format_shows_them(made):
    report = summarise(made[0], "small", made[1], {})
    for text in (plain_text(report), markdown([report]), page(report)):
        line = " ".join(text.split())
        for said in ("Coverage, 90% asked for", "90.50 ± 0.53", "1.25", "9 of 10", "5 of 10"):
            assert said in line


def test_a_table_without_the_measure_says_nothing_of_it(made):
    report = summarise(made[0], "small", records_of(made[0]), {})
    assert "asked for" not in markdown([report])
