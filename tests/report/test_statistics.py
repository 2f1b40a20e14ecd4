"""Intervals, tests and calibration against formulas written out, scipy and torchmetrics."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hma.extras import needed_beside_torchvision
from hma.metrics import resampling
from hma.metrics.resampling import bootstrap, percentile_interval, resample_counts
from hma.report.statistics import bootstrap_over_seeds, calibration, mcnemar, paired_t_test, wilson


@settings(deadline=None)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_the_formula(counts):
    right, total = counts
    z = scipy.stats.norm.ppf(0.975)
    share = right / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + (z / 2 / total) ** 2)
    found = wilson(right, total)
    assert found.value == share
    assert found.low == pytest.approx(max(centre - half, 0), abs=1e-12)
    assert found.high == pytest.approx(min(centre + half, 1), abs=1e-12)


def test_wilson_of_nothing_is_not_a_number():
    assert math.isnan(wilson(0, 0).value)


def test_wilson_refuses_more_right_than_there_are():
    with pytest.raises(ValueError, match="right must lie between 0 and total=3, got 4"):
        wilson(4, 3)


@settings(deadline=None)
@given(st.integers(0, 25), st.integers(0, 25))
def test_mcnemar_counts_the_splits_that_are_no_likelier(first, second):
    n = first + second
    ways = [math.comb(n, k) for k in range(n + 1)]
    exact = Fraction(sum(w for w in ways if w <= math.comb(n, first)), 2**n)
    assert mcnemar(first, second) == pytest.approx(float(exact), rel=1e-9)


def test_mcnemar_does_not_care_which_is_first():
    assert mcnemar(3, 11) == mcnemar(11, 3)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 5))
def test_every_resample_draws_as_many_rows_as_there_are(rows, resamples, seed):
    counts = np.concatenate(list(resample_counts(rows, resamples, seed)), axis=1)
    assert counts.shape == (rows, resamples)
    assert (counts.sum(axis=0) == rows).all()


def test_memory_limits_do_not_change_the_draws(monkeypatch):
    whole = np.concatenate(list(resample_counts(7, 50, seed=1)), axis=1)
    monkeypatch.setattr(resampling, "CHUNK", 20)
    parts = list(resample_counts(7, 50, seed=1))
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_resampling_needs_rows():
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        list(resample_counts(0, 5, seed=0))


def test_the_bootstrap_of_a_share_has_the_percentiles_of_the_binomial():
    right = np.zeros(200)
    right[:140] = 1
    drawn = bootstrap([lambda w: right @ w / 200], rows=200, resamples=20_000, seed=0)[0]
    found = percentile_interval(0.7, drawn)
    exact = scipy.stats.binom(200, 0.7).ppf([0.025, 0.975]) / 200
    np.testing.assert_allclose([found.low, found.high], exact, atol=0.0051)


def test_the_paired_bootstrap_agrees_with_scipy():
    generator = np.random.default_rng(1)
    first, second = (generator.random((2, 150)) < [[0.7], [0.8]]).astype(float)
    drawn = bootstrap(
        [lambda w: first @ w / 150, lambda w: second @ w / 150], rows=150, resamples=9000, seed=2
    )
    found = percentile_interval(float((second - first).mean()), drawn[1] - drawn[0])
    oracle = scipy.stats.bootstrap(
        (first, second),
        lambda a, b, axis: (b - a).mean(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=9000,
        rng=3,
    ).confidence_interval
    np.testing.assert_allclose([found.low, found.high], [oracle.low, oracle.high], atol=0.008)


def test_the_interval_of_a_difference_covers_the_truth_about_95_times_in_100():
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(300):
        hard = generator.random(120)  # rows both find hard: the two are correlated
        first = ((hard + 0.3 * generator.random(120)) < 0.8).astype(float)
        second = ((hard + 0.3 * generator.random(120)) < 0.9).astype(float)
        metrics = [lambda w, r=first: r @ w / 120, lambda w, r=second: r @ w / 120]
        drawn = bootstrap(metrics, rows=120, resamples=400, seed=seed)
        found = percentile_interval(0.0, drawn[1] - drawn[0])
        covered += found.low <= 0.1 <= found.high  # P(hard + 0.3 u < c) = c - 0.15
    assert 0.90 <= covered / 300 <= 0.985


# ------------------------------------------------------------------------------- over seeds


def means(values):
    """One metric: the weighted mean of a value for each row."""
    values = np.asarray(values)
    return [lambda weights: values @ weights / weights.sum(axis=0)]


@pytest.mark.parametrize("same_rows", [False, True])
def test_with_one_seed_it_is_the_bootstrap_over_rows(same_rows):
    values = np.random.default_rng(0).normal(size=30)
    draws = {"resamples": 200, "seed": 5}
    found = bootstrap_over_seeds([means(values)], rows=[30], same_rows=same_rows, **draws)
    np.testing.assert_array_equal(found, bootstrap(means(values), rows=30, **draws))


@pytest.mark.parametrize("same_rows", [False, True])
def test_where_rows_are_alike_it_is_the_bootstrap_over_seeds(same_rows):
    levels = np.array([0.1, 0.4, 0.5, 0.9])
    found = bootstrap_over_seeds(
        [means(np.full(7, level)) for level in levels],
        rows=[7] * 4,
        resamples=300,
        seed=2,
        same_rows=same_rows,
    )
    expected = bootstrap(means(levels), rows=4, resamples=300, seed=2 + 4)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_both_kinds_of_luck_are_in_its_spread():
    generator = np.random.default_rng(1)
    values = generator.normal(size=(6, 40)) + generator.normal(size=(6, 1))
    drawn = bootstrap_over_seeds(
        [means(rows) for rows in values], rows=[40] * 6, resamples=40_000, seed=0
    )
    within = values.var(axis=1).mean() / 40 / 6  # rows of a drawn seed
    between = values.mean(axis=1).var() / 6
    assert drawn.var() == pytest.approx(within + between, rel=0.04)


def test_rows_that_all_seeds_share_do_not_average_out():
    rows = np.random.default_rng(1).normal(size=40)
    drawn = bootstrap_over_seeds(
        [means(rows)] * 6, rows=[40] * 6, resamples=40_000, seed=0, same_rows=True
    )
    assert drawn.var() == pytest.approx(rows.var() / 40, rel=0.04)


@pytest.mark.parametrize("same_rows", [False, True])
def test_its_interval_covers_the_truth_about_95_times_in_100(same_rows):
    generator = np.random.default_rng(0)
    seeds, rows, covered, trials = 5, 80, 0, 300
    for trial in range(trials):
        noise = generator.normal(size=(1 if same_rows else seeds, rows))
        values = noise + generator.normal(size=(seeds, 1)) / math.sqrt(rows)
        drawn = bootstrap_over_seeds(
            [means(v) for v in values],
            rows=[rows] * seeds,
            resamples=300,
            seed=trial,
            same_rows=same_rows,
        )
        found = percentile_interval(float(values.mean()), drawn[0])
        covered += found.low <= 0 <= found.high
    assert 0.91 <= covered / trials <= 0.99


def test_seeds_may_have_different_numbers_of_rows():
    drawn = bootstrap_over_seeds(
        [means(np.zeros(3)), means(np.ones(50))], rows=[3, 50], resamples=400, seed=0
    )
    assert set(drawn[0]) == {0.0, 0.5, 1.0}


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=12).filter(lambda d: len({*d}) > 1))
def test_the_test_over_seeds_is_scipys(differences):
    expected = scipy.stats.ttest_1samp(differences, 0).pvalue
    assert paired_t_test(differences) == pytest.approx(expected, rel=1e-9)


def test_differences_without_any_spread_are_certain_or_nothing():
    assert paired_t_test([0.1, 0.1, 0.1]) == 0
    assert paired_t_test([0.0, 0.0]) == 1


def test_replicates_without_a_value_are_left_out():
    found = percentile_interval(0.5, np.array([0.25, np.nan, 0.75, np.nan]))
    assert (found.low, found.high) == (0.2625, 0.7375)
    assert math.isnan(percentile_interval(0.5, np.array([np.nan])).low)
    assert math.isnan(percentile_interval(math.nan, np.array([0.5])).low)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(2, 5), st.integers(0, 10**6))
def test_calibration_error_is_that_of_torchmetrics(rows, classes, seed):
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.ones(classes), rows)
    labels = generator.integers(classes, size=rows)
    metrics = needed_beside_torchvision("torchmetrics.functional.classification", "the oracle")
    oracle = metrics.multiclass_calibration_error(
        torch.tensor(probabilities), torch.tensor(labels), num_classes=classes, n_bins=15, norm="l1"
    )
    assert calibration(probabilities, labels).error == pytest.approx(float(oracle), abs=1e-5)


def test_bins_hold_what_a_loop_puts_in_them():
    generator = np.random.default_rng(5)
    probabilities = generator.dirichlet(np.ones(3), 200)
    labels = generator.integers(3, size=200)
    found = calibration(probabilities, labels, bins=10)
    for k in range(10):
        inside = [i for i in range(200) if k / 10 < probabilities[i].max() <= (k + 1) / 10]
        assert found.count[k] == len(inside)
        if inside:
            right = [int(probabilities[i].argmax() == labels[i]) for i in inside]
            assert found.accuracy[k] == pytest.approx(np.mean(right))
            sure = [probabilities[i].max() for i in inside]
            assert found.confidence[k] == pytest.approx(np.mean(sure))
        else:
            assert math.isnan(found.accuracy[k])


def test_being_wholly_sure_and_right_is_wholly_calibrated():
    found = calibration(np.eye(4), np.arange(4))
    assert found.error == 0
    assert found.count[-1] == 4


def test_a_bin_holds_its_upper_end_and_not_its_lower_one():
    half = calibration(np.array([[0.5, 0.5]]), np.array([0]), bins=10)
    assert half.count.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_calibration_needs_rows():
    with pytest.raises(ValueError, match="labels must hold at least one row"):
        calibration(np.empty((0, 2)), np.empty(0, dtype=np.int64))
