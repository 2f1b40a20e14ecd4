"""Rows against the baseline: scipy and enumeration agree, seeds that one lacks are left out."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hma.paper.report.scores import RESAMPLES, holm, paired, spread_of, wilcoxon


def every_sign(differences):
    """Return the exact two-sided p-value by trying every sign of the ranks."""
    apart = [d for d in differences if d != 0]
    ranks = stats.rankdata(np.abs(apart))
    seen = sum(rank for rank, d in zip(ranks, apart, strict=True) if d > 0)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product((False, True), repeat=len(apart))
    ]
    below, above = (np.mean([s <= seen for s in sums]), np.mean([s >= seen for s in sums]))
    return min(1.0, 2 * min(below, above))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=8).filter(any))
def test_p_is_that_of_every_sign_tried_with_ties_and_zeros(differences):
    assert wilcoxon(differences) == pytest.approx(every_sign(differences), abs=1e-8)


@pytest.mark.parametrize("count", [1, 2, 5, 10, 20, 50])
def test_p_without_ties_is_scipys_exact_one(count):
    draw = random.Random(count)
    differences = [draw.gauss(0.3, 1) for _ in range(count)]
    exact = stats.wilcoxon(differences, method="exact").pvalue
    assert wilcoxon(differences) == pytest.approx(exact, abs=1e-8)


def test_no_difference_at_all_has_p_one_and_an_interval_of_nothing():
    found = paired({0: 70.0, 1: 71.0, 2: 72.0}, {0: 70.0, 1: 71.0, 2: 72.0})
    assert (found.pairs, found.difference, found.p) == (3, 0.0, 1.0)
    assert (found.low, found.high) == (0.0, 0.0)


@pytest.mark.parametrize("pairs", [1, 2, 3, 4, 5])
def test_with_fewer_than_six_pairs_p_is_never_below_a_twentieth(pairs):
    assert paired(dict.fromkeys(range(pairs), 9.0), dict.fromkeys(range(pairs), 1.0)).p >= 0.0625
    assert wilcoxon([1.0 + i for i in range(pairs)]) == pytest.approx(2 / 2**pairs)


def test_only_seeds_that_both_have_are_compared():
    row = {0: 70.0, 1: 74.0, 2: 99.0, 4: 71.5}
    baseline = {0: 69.0, 1: 71.0, 3: 1.0, 4: 71.0}
    found = paired(row, baseline)
    assert found.pairs == 3
    assert found.difference == pytest.approx(np.mean([1.0, 3.0, 0.5]))
    assert paired({2: 99.0}, {3: 1.0}) is None


def test_a_score_that_is_not_defined_makes_no_pair():
    found = paired({0: 70.0, 1: float("nan")}, {0: 69.0, 1: 70.0})
    assert (found.pairs, found.difference) == (1, 1.0)


def test_one_pair_has_no_interval():
    found = paired({0: 70.0}, {0: 69.0})
    assert (found.low, found.high, found.p) == (None, None, 1.0)


def test_the_interval_is_the_one_scipy_bootstraps():
    draw = random.Random(1)
    row = {seed: draw.gauss(72, 1) for seed in range(10)}
    baseline = {seed: draw.gauss(71, 1) for seed in range(10)}
    differences = np.array([row[seed] - baseline[seed] for seed in range(10)])
    oracle = stats.bootstrap(
        (differences,), np.mean, n_resamples=50_000, method="percentile", rng=7
    ).confidence_interval
    found = paired(row, baseline)
    assert found.low == pytest.approx(oracle.low, abs=0.03)
    assert found.high == pytest.approx(oracle.high, abs=0.03)
    assert RESAMPLES >= 10_000


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(8)))
def test_the_order_of_seeds_does_not_matter(order):
    draw = random.Random(3)
    row = {seed: draw.gauss(72, 1) for seed in range(8)}
    baseline = {seed: draw.gauss(71, 1) for seed in range(8)}
    shuffled = {seed: row[seed] for seed in order}
    assert paired(shuffled, baseline) == paired(row, baseline)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_the_step_down_of_bonferroni(p_values):
    corrected = holm(p_values)
    for i, p in enumerate(p_values):
        # by definition: the largest of (number of p not smaller) * p over all p up to this one
        steps = [
            min(1.0, (len(p_values) - rank) * q)
            for rank, q in enumerate(sorted(p_values))
            if q <= p
        ]
        assert corrected[i] == pytest.approx(max(steps), abs=1e-8)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20))
def test_the_spread_is_numpys_mean_and_sample_deviation(scores):
    found = spread_of(scores)
    assert found.mean == pytest.approx(np.mean(scores), abs=1e-8)
    assert found.std == pytest.approx(np.std(scores, ddof=1), abs=1e-8)
    assert found.count == len(scores)
