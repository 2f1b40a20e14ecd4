"""Published numbers beside ours: Welch's interval against SciPy, and the rule."""

import math
from dataclasses import replace

import pytest
from scipy.stats import ttest_ind_from_stats
from table_records import keep, made_up_table, record_of, records_of

from hma.methods import erm
from hma.metrics.resampling import Interval
from hma.paper.report.documents import reports_of
from hma.paper.report.scores import Spread
from hma.paper.report.verdicts import numbers_of, verdict_of, welch_interval
from hma.paper.results import Results
from hma.paper.table import Budget, Row
from hma.training import Recipe


@pytest.mark.parametrize(
    ("ours", "published", "seeds"),
    [(Spread(72.0, 2.0, 3), (70.0, 1.0), 10), (Spread(0.2, 0.1, 10), (0.3, 0.02), 5)],
)
def test_the_interval_is_welchs(ours, published, seeds):
    test = ttest_ind_from_stats(ours.mean, ours.std, ours.count, *published, seeds, equal_var=False)
    found = welch_interval(ours, published, seeds)
    expected = test.confidence_interval() if hasattr(test, "confidence_interval") else None
    for level, inside in ((1 - test.pvalue + 1e-9, True), (1 - test.pvalue - 1e-9, False)):
        there = welch_interval(ours, published, seeds, level)
        assert (there.low <= 0 <= there.high) is inside  # p is the level that just holds 0
    assert found.value == pytest.approx(ours.mean - published[0])
    assert expected is None or (found.low, found.high) == pytest.approx(
        (expected.low, expected.high)
    )


def test_a_single_seed_leaves_a_value_open():
    found = welch_interval(Spread(70.0, None, 1), (70.0, 1.0), 10)
    assert math.isnan(found.low)
    assert verdict_of(found, 1.0, 2.0, "as published") == "open"


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((0.1, 0.9), "confirmed"),  # within a point, whatever the sign
        ((0.1, 1.1), "not confirmed"),
        ((-3.0, -1.0), "not confirmed"),
        ((-1.5, 1.9), "confirmed"),
        ((-2.1, 1.9), "open"),
    ],
)
def test_the_rule_of_a_number(ends, verdict):
    difference = Interval(sum(ends) / 2, *ends)
    assert verdict_of(difference, 1.0, 2.0, "as published") == verdict
    assert verdict_of(difference, 1.0, 2.0, "reduced") == "open"
    assert verdict_of(difference, 1.0, 2.0, "not available") == "open"


def found_in(table, tmp_path, records):
    reports = reports_of(table, keep(Results(tmp_path), records))
    return {(one.task, one.row): one for one in numbers_of(reports)}


def test_a_number_is_of_the_largest_budget_that_has_it_and_never_of_a_smoke_run(tmp_path):
    table = made_up_table(unmeasured={"ri*": "no data"})
    cells = [c for c in table.cells("small") if (c.task, c.method) == ("left", "hma")]
    whole = [c for c in table.cells("paper") if (c.task, c.method) == ("left", "plain")][:3]
    smoke = [c for c in table.cells("smoke") if c.task == "right"]
    small = [c for c in table.cells("small") if c.method == "plain"]
    records = records_of(table, [*cells, *whole, *smoke, *small])
    found = found_in(table, tmp_path, records)
    assert found["left", "plain"].budget == "paper"
    assert found["left", "plain"].measured.count == 3
    assert found["left", "plain"].scale == "as published"
    assert found["left", "plain"].command == (
        "hma run T9 --budget paper --only 'left/plain' --seeds 10"
    )
    assert found["left", "hma"].scale == "reduced"
    assert found["left", "hma"].how == "small of it"
    assert found["left", "hma"].verdict == "open"
    assert found["right", "plain"].budget == "small"
    seconds = sum(records[cell].seconds for cell in whole)
    assert found["left", "plain"].seconds == pytest.approx(seconds)


def test_what_is_not_measured_says_why(tmp_path):
    table = made_up_table(unmeasured={"ri*": "no data"})
    found = found_in(table, tmp_path, {})
    assert [(one.scale, one.how) for one in found.values()] == [
        ("not available", "not measured yet"),
        ("not available", "not measured yet"),
        ("not available", "no data"),
    ]


def test_other_data_is_never_as_published(tmp_path):
    recipe = Recipe(steps=1)
    budgets = {
        name: Budget(what=name, recipe=recipe, seeds=2, differs="other words" * (name == "paper"))
        for name in ("smoke", "small", "paper")
    }
    table = made_up_table(budgets=budgets)
    found = found_in(table, tmp_path, records_of(table, table.cells("paper")))
    assert {(one.scale, one.how, one.verdict) for one in found.values()} == {
        ("reduced", "other words", "open")
    }


def test_a_retired_row_stands_in_for_that_of_today_until_it_is_measured(tmp_path):
    rows = made_up_table().rows
    earlier = Row(retired="c0ffee", what="as it was", instead_of="plain")
    table = made_up_table(rows={**rows, "plain-earlier": earlier})
    old = [c for c in table.cells("paper") if c.method == "plain-earlier"]
    found = found_in(table, tmp_path, records_of(table, old))
    assert ("left", "plain-earlier") not in found
    one = found["left", "plain"]
    assert (one.measured.count, one.scale) == (10, "as published")
    assert one.how == "row plain-earlier: as it was"
    fresh = [c for c in table.cells("paper") if c.method == "plain"]
    again = found_in(table, tmp_path, records_of(table, fresh))
    assert again["left", "plain"].how == ""


def test_the_published_value_itself_is_confirmed(tmp_path):
    table = made_up_table()
    cells = [c for c in table.cells("paper") if (c.task, c.method) == ("left", "plain")]
    near = {c: 0.70 + 0.001 * (c.seed % 3 - 1) for c in cells}
    records = {
        c: record_of(table, c, tests={"first": {"alone": {"accuracy": score, "nll": 1.0}}})
        for c, score in near.items()
    }
    assert found_in(table, tmp_path, records)["left", "plain"].verdict == "confirmed"
    far = {
        c: replace(one, tests={"first": {"alone": {"accuracy": near[c] + 0.2, "nll": 1.0}}})
        for c, one in records.items()
    }
    assert found_in(table, tmp_path / "far", far)["left", "plain"].verdict == "not confirmed"


def test_a_row_that_stands_in_must_be_retired():
    rows = {**made_up_table().rows, "more": Row(build=erm, what="more", instead_of="plain")}
    with pytest.raises(ValueError, match="instead_of is for a retired row"):
        made_up_table(rows=rows)
