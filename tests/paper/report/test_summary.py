"""The numbers of a table's report, recomputed from the JSON files with numpy and scipy."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from table_records import keep, made_up_table, record_of, records_of

from hma.errors import UserError
from hma.paper.report.documents import report_of
from hma.paper.report.formats import markdown, origin, plain_text
from hma.paper.report.page import page
from hma.paper.report.summary import summarise
from hma.paper.results import Failure, Results
from hma.paper.table import Cell, Row


def cell(task, method, seed, budget="small"):
    return Cell("T9", budget, task, method, seed)


@pytest.fixture
def table():
    return made_up_table()


@pytest.fixture
def records(table):
    """Return records with holes: hma lacks two seeds on the left, the baseline another one."""
    missing = {cell("left", "hma", 3), cell("left", "hma", 7), cell("left", "plain", 5)}
    return {key: record for key, record in records_of(table).items() if key not in missing}


def test_a_smoke_report_says_that_its_numbers_mean_nothing(table):
    cells = table.cells("smoke")
    report = summarise(table, "smoke", {key: record_of(table, key) for key in cells}, {})
    said = "Budget smoke only shows that every cell runs: these numbers mean nothing."
    assert said in plain_text(report)
    assert said in page(report)
    assert said in markdown([report])
    assert said not in plain_text(summarise(table, "small", records_of(table), {}))


def test_one_seed_is_a_seed(table):
    cells = table.cells("small", None, 1)
    kept = {key: record_of(table, key) for key in cells}
    report = summarise(table, "small", kept, {}, seeds=1)
    for text in (plain_text(report), page(report), markdown([report])):
        assert "with seed 0." in text
        assert "1 seeds" not in text
        assert "1</b> seeds" not in text
    assert "<b>1</b> seed<" in page(report)


def raw_scores(folder, task, method, context, split=None):
    """Return seed -> percent, straight from the files."""
    found = {}
    for path in (folder / "T9" / "small" / task / method).glob("*.json"):
        tests = json.loads(path.read_text())["tests"]
        splits = list(tests) if split is None else [split]
        found[int(path.stem)] = 100 * np.mean([tests[s][context]["accuracy"] for s in splits])
    return found


def test_every_number_is_the_one_numpy_finds_in_the_files(table, records, tmp_path):
    results = keep(Results(tmp_path), records)
    report = report_of(table, "small", results)
    for (task, method), entry in report.entries.items():
        contexts = ["batch", "batch-sorted", "alone"] if method == "hma" else ["alone"]
        assert list(entry.contexts) == contexts
        assert entry.context == contexts[0]
        for context in contexts:
            raw = list(raw_scores(tmp_path, task, method, context).values())
            found = entry.contexts[context]
            assert found.mean == pytest.approx(np.mean(raw))
            assert found.std == pytest.approx(np.std(raw, ddof=1))
            assert found.count == len(raw)
        assert entry.measured == entry.contexts[contexts[0]]
        for split in ("first", "second"):
            raw = list(raw_scores(tmp_path, task, method, contexts[0], split).values())
            assert entry.splits[split].mean == pytest.approx(np.mean(raw))
            assert entry.splits[split].std == pytest.approx(np.std(raw, ddof=1))


def test_comparisons_are_over_the_seeds_in_both_folders(table, records, tmp_path):
    report = report_of(table, "small", keep(Results(tmp_path), records))
    for task in ("left", "right"):
        base = raw_scores(tmp_path, task, "plain", "alone")
        assert report.entries[task, "plain"].paired is None
        p_values = {}
        for method, context in (("rma", "alone"), ("hma", "batch")):
            row = raw_scores(tmp_path, task, method, context)
            seeds = sorted(set(row) & set(base))
            differences = np.array([row[s] - base[s] for s in seeds]).round(9)
            found = report.entries[task, method].paired
            assert found.pairs == len(seeds)
            assert found.difference == pytest.approx(differences.mean())
            assert found.p == pytest.approx(stats.wilcoxon(differences).pvalue)
            assert found.low < found.difference < found.high
            p_values[method] = found
        small, large = sorted(p_values.values(), key=lambda pair: pair.p)
        assert small.p_holm == pytest.approx(min(1, 2 * small.p))
        assert large.p_holm == pytest.approx(max(large.p, small.p_holm))
    assert report.entries["left", "hma"].paired.pairs == 7
    assert report.entries["left", "rma"].paired.pairs == 9
    assert report.entries["right", "hma"].paired.pairs == 10


def test_published_numbers_are_the_tables_and_differences_are_to_them(table, records):
    report = summarise(table, "small", records, {})
    left = report.entries["left", "hma"]
    assert left.published == (72.25, 0.5)
    assert left.difference == pytest.approx(left.measured.mean - 72.25)
    assert report.entries["right", "hma"].published is None
    assert report.entries["right", "hma"].difference is None


def test_an_average_has_no_hole(table, records):
    averages = summarise(table, "small", records, {}).groups[0].averages
    assert averages["plain"].measured is None  # a seed is missing on one of the tasks
    assert averages["hma"].measured is None
    assert averages["plain"].published == 65.0
    assert averages["hma"].published is None  # the paper has one task only
    per_seed = [
        np.mean(
            [
                values["alone"]["accuracy"]
                for task in ("left", "right")
                for values in records[cell(task, "rma", seed)].tests.values()
            ]
        )
        for seed in range(10)
    ]
    found = averages["rma"].measured
    assert found.mean == pytest.approx(100 * np.mean(per_seed))
    assert found.std == pytest.approx(100 * np.std(per_seed, ddof=1))
    whole = summarise(table, "small", records_of(table), {}).groups[0].averages["plain"]
    assert whole.difference == pytest.approx(whole.measured.mean - 65.0)


def test_the_smallest_mean_is_the_best_of_a_metric_whose_small_values_are_good(table):
    table = replace(table, metric="nll")
    losses = {"plain": 0.2, "rma": 0.5, "hma": 0.4}
    records = {
        cell: record_of(table, cell, tests={"test": {"alone": {"nll": losses[cell.method]}}},
                        contexts=["alone"])
        for cell in table.cells("small")
    }  # fmt: skip
    report = summarise(table, "small", records, {})
    assert [m for m in report.methods if report.entries["left", m].best] == ["plain"]
    assert "Bold: the smallest mean" in plain_text(report)


def test_the_largest_mean_of_a_task_is_the_best(table, records):
    report = summarise(table, "small", records, {})
    for task in ("left", "right"):
        means = {m: report.entries[task, m].measured.mean for m in report.methods}
        best = [m for m in report.methods if report.entries[task, m].best]
        assert best == [max(means, key=means.get)]


def test_costs_are_mean_seconds_and_largest_memory(table, records):
    report = summarise(table, "small", records, {})
    for method, cost in report.costs.items():
        held = [record for key, record in records.items() if key.method == method]
        assert cost.records == len(held)
        assert cost.wanted == 20
        assert cost.seconds == pytest.approx(np.mean([record.seconds for record in held]))
        assert cost.peak_memory_bytes == max(record.peak_memory_bytes for record in held)


@settings(max_examples=8, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_the_order_of_records_and_failures_does_not_matter(draw, left_out):
    table = made_up_table()
    items = list(records_of(table).items())[left_out:]
    failed = [(key, Failure("it broke")) for key in list(table.cells("small"))[:left_out]]
    before = summarise(table, "small", dict(items), dict(failed))
    draw.shuffle(items)
    draw.shuffle(failed)
    after = summarise(table, "small", dict(items), dict(failed))
    assert repr(after) == repr(before)


def test_a_retired_row_is_shown_with_its_commit_and_what_it_lacks_is_not_asked_for(table):
    rows = {**table.rows, "rma": Row(retired="54d3a106", what="left")}
    table = made_up_table(rows=rows)
    lacking = cell("left", "rma", 0)
    records = {key: one for key, one in records_of(table).items() if key != lacking}
    report = summarise(table, "small", records, {})
    assert report.methods["rma"] == "left (measured at commit 54d3a106, no longer part of hma)"
    assert (report.cells, report.records, report.retired) == (60, 59, 1)
    text = " ".join(plain_text(report).split())
    assert "59 of 60 cells are measured" in text
    assert "this measures them" not in text
    del records[cell("left", "hma", 0)]
    assert "1 cells are missing; this measures them" in plain_text(
        summarise(table, "small", records, {})
    )


def test_nothing_measured_is_missing_not_zero(table):
    report = summarise(table, "small", {}, {})
    assert (report.records, report.cells) == (0, 60)
    for entry in report.entries.values():
        assert entry.measured is None
        assert entry.paired is None
        assert not entry.best
        assert entry.contexts == entry.splits == {}
    assert all(cost.seconds is None for cost in report.costs.values())


def test_failures_count_only_where_there_is_no_record(table, records):
    failures = {
        key: Failure("it broke") for key in (cell("left", "hma", 3), cell("left", "hma", 0))
    }
    report = summarise(table, "small", records, failures)
    assert report.entries["left", "hma"].failed == (3,)
    assert report.costs["hma"].failed == 1
    assert list(report.failures) == ["T9 small left/hma seed 3"]


def test_records_of_another_budget_do_not_enter(table):
    others = {key: record_of(table, key) for key in table.cells("smoke")}
    assert summarise(table, "small", others, {}).records == 0


def test_only_and_seeds_choose_a_part_and_the_command_asks_for_the_same(table, records):
    report = summarise(table, "small", records, {}, only="left/*", seeds=4)
    assert set(report.entries) == {("left", "plain"), ("left", "rma"), ("left", "hma")}
    assert report.seeds == (0, 1, 2, 3)
    assert report.entries["left", "hma"].measured.count == 3
    assert report.outside == ("right",)
    assert report.command == "hma run T9 --budget small --only 'left/*' --seeds 4"
    assert report.groups[0].averages == {}


def test_without_the_baseline_there_are_no_comparisons(table, records):
    report = summarise(table, "small", records, {}, only="hma")
    assert all(entry.paired is None for entry in report.entries.values())


def test_curves_group_tasks_and_what_is_on_none_comes_after(records):
    table = made_up_table(curves={"left": ("left",)})
    names = [(group.name, group.tasks) for group in summarise(table, "small", records, {}).groups]
    assert names == [("left", ("left",)), ("", ("right",))]


def test_matthews_is_no_share():
    table = made_up_table(metric="matthews", published={})
    key = cell("left", "plain", 0)
    tests = {"test": {"alone": {"matthews": 0.25}}}
    report = summarise(table, "small", {key: record_of(table, key, tests=tests)}, {})
    assert report.entries["left", "plain"].measured.mean == 0.25


def test_a_score_that_is_not_defined_is_shown_and_is_never_the_best(table):
    undefined = {"test": {"alone": {"accuracy": math.nan}}}
    records = {
        cell("left", "plain", 0): record_of(table, cell("left", "plain", 0), tests=undefined),
        cell("left", "rma", 0): record_of(table, cell("left", "rma", 0)),
        cell("left", "rma", 1): record_of(table, cell("left", "rma", 1)),
        cell("left", "plain", 1): record_of(table, cell("left", "plain", 1)),
    }
    report = summarise(table, "small", records, {})
    assert math.isnan(report.entries["left", "plain"].measured.mean)
    assert not report.entries["left", "plain"].best
    assert report.entries["left", "rma"].paired.pairs == 1


def test_a_record_without_the_tables_metric_is_refused(table):
    key = cell("left", "plain", 0)
    record = record_of(table, key, tests={"test": {"alone": {"auroc": 0.5}}})
    with pytest.raises(UserError, match="left/plain, seed 0, has no accuracy"):
        summarise(table, "small", {key: record}, {})
    with pytest.raises(UserError, match="has no test splits"):
        summarise(table, "small", {key: replace(record, tests={})}, {})


def test_rows_measured_on_different_data_are_reported(table, records):
    key = cell("left", "hma", 2)
    records[key] = replace(records[key], data_fingerprint="other")
    warnings = summarise(table, "small", records, {}).warnings
    assert warnings == ("left, seed 2: not all rows were measured on the same data",)


def test_commits_and_versions_are_counted(table, records):
    key = cell("left", "hma", 2)
    records[key] = replace(records[key], git_commit=None, versions={"python": "3.12.1"})
    report = summarise(table, "small", records, {})
    said = origin(report)
    assert said["commits"] == "c0ffee (56 records), unknown (1 records)"
    assert said["python"] == "3.11.7 (56 records), 3.12.1 (1 records)"


def test_a_record_of_other_settings_is_refused(table, records, tmp_path):
    results = keep(Results(tmp_path), records)
    changed = made_up_table(rows={**table.rows, "rma": table.rows["hma"]})
    with pytest.raises(UserError, match="was measured with other settings"):
        report_of(changed, "small", results)
