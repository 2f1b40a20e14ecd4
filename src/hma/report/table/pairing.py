"""Two rows over the same seeds: how far apart they are, and whether that could be chance."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

import numpy as np

from hma.metrics.resampling import bootstrap, percentile_interval
from hma.report.table.table_report import Paired, Spread

RESAMPLES = 10_000
SETTLED = 9
"""Decimals kept: what machines may compute differently lies behind them."""


def settled(value: float) -> float:
    """Return a number without the digits that depend on the order of additions.

    Example:
        >>> settled(0.1 + 0.2)
        0.3
    """
    return round(value, SETTLED) + 0.0  # + 0.0: no negative zero


def spread_of(scores: Sequence[float]) -> Spread | None:
    """Return mean and sample standard deviation, None of nothing.

    A score that is not defined leaves the mean undefined, and no deviation.

    Example:
        >>> spread_of([70.0, 72.0, 74.0]), spread_of([70.0]), spread_of([])
        (Spread(mean=72.0, std=2.0, count=3), Spread(mean=70.0, std=None, count=1), None)
    """
    if not scores:
        return None
    mean = fmean(scores)
    defined = len(scores) > 1 and math.isfinite(mean)
    return Spread(settled(mean), settled(stdev(scores)) if defined else None, len(scores))


def paired(row: Mapping[int, float], baseline: Mapping[int, float]) -> Paired | None:
    """Compare two rows seed by seed, over the seeds that both have; None if there are none.

    A score that is not defined is not a number to compare.

    ``p_holm`` is the plain p until :func:`holm` has seen the other comparisons.

    Args:
        row, baseline: Seed -> score.

    Example:
        >>> found = paired({0: 3.0, 1: 5.0, 2: 9.0}, {0: 1.0, 1: 4.0, 5: 0.0})
        >>> found.pairs, found.difference, found.p
        (2, 1.5, 0.5)
    """
    common = sorted(row.keys() & baseline.keys())
    seeds = [seed for seed in common if math.isfinite(row[seed] - baseline[seed])]
    if not seeds:
        return None
    differences = [settled(row[seed] - baseline[seed]) for seed in seeds]
    low, high = _interval(differences)
    p = wilcoxon(differences)
    mean = settled(fmean(differences))
    return Paired(pairs=len(seeds), difference=mean, low=low, high=high, p=p, p_holm=p)


def wilcoxon(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value of Wilcoxon's signed-rank test.

    Differences of 0 are left out, as Wilcoxon did. Equal ones share the mean of their ranks, and
    every choice of signs is counted, so the p-value is exact with ties as well.

    Example:
        >>> wilcoxon([1, 2, 3, 4, 5, 6]), wilcoxon([0, 0])
        (0.03125, 1.0)
    """
    apart = [value for value in differences if value != 0]
    sizes = sorted(abs(value) for value in apart)
    ranks = [sizes.count(abs(v)) + 2 * bisect_left(sizes, abs(v)) + 1 for v in apart]  # doubled
    ways = [1] + [0] * sum(ranks)  # to choose signs, by the sum of the positive ranks
    for rank in ranks:
        ways = [
            count + (ways[total - rank] if total >= rank else 0) for total, count in enumerate(ways)
        ]
    seen = sum(rank for rank, value in zip(ranks, apart, strict=True) if value > 0)
    fewer = min(sum(ways[: seen + 1]), sum(ways[seen:]))
    return settled(min(1.0, 2 * fewer / 2 ** len(apart)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected after Holm, in the order given.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = settled(largest)
    return corrected


def _interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the ends of the bootstrap interval of the mean; a single difference has none."""
    count = len(differences)
    if count < 2:
        return None, None
    values = np.array(differences)
    drawn = bootstrap(
        [lambda counts: (values[:, None] * counts).sum(axis=0) / count],
        rows=count,
        resamples=RESAMPLES,
        seed=0,
    )
    found = percentile_interval(float(values.mean()), drawn[0].round(SETTLED))
    return settled(found.low), settled(found.high)
