"""Conformal thresholds against numpy, scipy and draws of exchangeable scores."""

import math

import numpy as np
import pytest
import torch

from hma.errors import UserError
from hma.questions.conformal import (
    class_scores,
    class_sets,
    coverage_interval,
    least_rows,
    rank,
    threshold,
)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("count", [99, 100, 101, 137])
def test_the_threshold_is_the_finite_sample_quantile(coverage, count):
    scores = np.random.default_rng(count).normal(size=count)
    level = math.ceil(round((count + 1) * coverage, 9)) / count
    wanted = np.quantile(scores, level, method="inverted_cdf")
    assert threshold(torch.tensor(scores), coverage) == wanted


@pytest.mark.parametrize("coverage", [0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.999])
def test_the_least_number_of_rows_is_the_first_whose_largest_score_will_do(coverage):
    needed = next(n for n in range(1, 2000) if n / (n + 1) >= coverage - 1e-12)
    assert least_rows(coverage) == needed
    assert rank(needed, coverage) == needed
    with pytest.raises(UserError, match=f"needs at least {needed} validation rows, got"):
        rank(needed - 1, coverage)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 95.0, math.nan])
def test_a_coverage_is_between_0_and_1(coverage):
    with pytest.raises(UserError, match=r"coverage must be between 0 and 1, such as 0.95, got"):
        least_rows(coverage)


def test_sets_hold_what_a_loop_puts_in():
    probabilities = torch.rand(20, 4, generator=torch.Generator().manual_seed(1)).softmax(1)
    for most in (0.5, 0.7, 0.75, 0.8):
        for row, inside in zip(
            probabilities.tolist(), class_sets(probabilities, most), strict=True
        ):
            wanted = [1 - p <= most or p == max(row) for p in row]
            assert inside.tolist() == wanted


def test_a_row_at_the_threshold_is_covered():
    probabilities = torch.rand(30, 5).softmax(dim=1)
    labels = torch.arange(30) % 5
    scores = class_scores(probabilities, labels)
    most = threshold(scores, 0.9)
    covered = class_sets(probabilities, most)[torch.arange(30), labels]
    assert int(covered.sum()) >= rank(30, 0.9)
    assert bool(covered[scores == most].all())


@pytest.mark.parametrize(("rows", "coverage", "tested"), [(40, 0.9, 100), (200, 0.95, 37)])
def test_the_interval_is_that_of_the_beta_binomial(rows, coverage, tested):
    betabinom = pytest.importorskip("scipy.stats").betabinom
    k = rank(rows, coverage)
    law = betabinom(tested, k, rows + 1 - k)
    wanted = (law.ppf(0.025) / tested, law.ppf(0.975) / tested)
    assert coverage_interval(rows, coverage, tested) == pytest.approx(wanted)


def test_exchangeable_scores_are_covered_as_often_as_asked():
    draws, rows, tested, coverage = 2000, 49, 20, 0.9
    scores = np.random.default_rng(0).exponential(size=(draws, rows + tested))
    hits = np.array(
        [(new[rows:] <= threshold(torch.tensor(new[:rows]), coverage)).mean() for new in scores]
    )
    k = rank(rows, coverage)
    error = hits.std() / math.sqrt(draws)
    assert abs(hits.mean() - k / (rows + 1)) < 4 * error
    low, high = coverage_interval(rows, coverage, tested)
    assert 0.93 < ((low <= hits) & (hits <= high)).mean() < 0.99
