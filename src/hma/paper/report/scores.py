"""Scores of rows over seeds: means, pairs, tests, and how the paper prints them."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from hma.errors import UserError
from hma.metrics import METRICS
from hma.metrics.resampling import bootstrap, percentile_interval
from hma.report.numbers import MINUS, MISSING, fixed
from hma.training import Record

RESAMPLES = 10_000
SETTLED = 9
"""Decimals kept: what machines may compute differently lies behind them."""
UNDEFINED = "undefined"


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; one seed has no deviation."""

    mean: float
    std: float | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A row against the baseline over the seeds that both have.

    Args:
        pairs: Number of those seeds.
        difference: Mean of row minus baseline.
        low, high: Ends of the 95% bootstrap interval of that mean; None of a single pair.
        p: Of Wilcoxon's signed-rank test, two-sided, not corrected.
        p_holm: Corrected after Holm for the comparisons of the same task.
    """

    pairs: int
    difference: float
    low: float | None
    high: float | None
    p: float
    p_holm: float


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


def score(record: Record, metric: str, context: str, split: str | None = None) -> float:
    """Return a score as the paper writes it: of one test split, or the mean over all.

    Args:
        record: A finished run.
        metric: Name of the metric.
        context: Inference context.
        split: Test split; None for the mean.
    """
    names = list(record.tests) if split is None else [split]
    try:
        values = [record.tests[name][context][metric] for name in names]
        if not values:
            raise KeyError("test splits")
    except KeyError as error:
        raise UserError(
            f"the record of {record.name}, seed {record.seed}, has no {error.args[0]}: its table "
            f"reports {metric} in context {context}; move the record away and measure it again"
        ) from error
    return settled(METRICS[metric].scale * fmean(values))


def contexts_of(record: Record) -> list[str]:
    """Return the inference contexts of a record, the learner's own first."""
    return list(record.setup["method"]["contexts"])


def title(metric: str) -> str:
    """Return the name of a metric with its unit.

    Example:
        >>> title("auroc"), title("matthews")
        ('AUROC in %', 'Matthews correlation')
    """
    found = METRICS[metric]
    return f"{found.title} in %" if found.scale == 100 else found.title


def amount(metric: str, value: float | None, *, sign: str = "") -> str:
    """Return a score or, with the sign '+', a difference of scores.

    Example:
        >>> amount("accuracy", 41.256), amount("matthews", -0.0312, sign="+")
        ('41.26', '−0.031')
        >>> amount("accuracy", None)
        '—'
    """
    if value is None:
        return MISSING
    return UNDEFINED if math.isnan(value) else fixed(value, METRICS[metric].digits, sign)


def spread(metric: str, found: Spread | None) -> str:
    """Return mean and standard deviation over seeds.

    Example:
        >>> spread("accuracy", Spread(41.256, 1.2, 10)), spread("accuracy", None)
        ('41.26 ± 1.20', '—')
        >>> spread("accuracy", Spread(41.256, None, 1))
        '41.26'
    """
    if found is None:
        return MISSING
    if found.std is None:
        return amount(metric, found.mean)
    return f"{amount(metric, found.mean)} ± {amount(metric, found.std)}"


def printed(published: tuple[float, float] | None) -> str:
    """Return what the paper prints, with its two decimals.

    Example:
        >>> printed((75.1, 0.24)), printed(None)
        ('75.10 ± 0.24', '—')
    """
    if published is None:
        return MISSING
    mean, std = (f"{value:.2f}".replace("-", MINUS) for value in published)
    return f"{mean} ± {std}"


def ends(metric: str, low: float | None, high: float | None) -> str:
    """Return the ends of the interval of a difference.

    Example:
        >>> ends("accuracy", -0.1, 0.52), ends("accuracy", None, None)
        ('−0.10 to +0.52', '—')
    """
    if low is None or high is None:
        return MISSING
    return f"{amount(metric, low, sign='+')} to {amount(metric, high, sign='+')}"


def part(count: int, whole: int) -> str:
    """Return how many of how many, or nothing where none is missing.

    Example:
        >>> part(3, 10), part(10, 10)
        ('(3 of 10)', '')
    """
    return "" if count == whole else f"({count} of {whole})"
