"""How sure a score is: the same rows drawn again and again, for every score alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hma.metrics.metric import Floats, OfWeights

LEVEL = 0.95
CHUNK = 4_000_000
"""Numbers of a resampling held in memory at a time."""


@dataclass(frozen=True)
class Interval:
    """A number and the ends of its confidence interval; NaN where it is not defined."""

    value: float
    low: float
    high: float


def resample_counts(rows: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Yield how often each row is drawn, ``(rows, R)`` at a time, ``resamples`` draws in all.

    Example:
        >>> [counts.sum(axis=0).tolist() for counts in resample_counts(rows=4, resamples=3, seed=0)]
        [[4.0, 4.0, 4.0]]
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    generator = np.random.default_rng(seed)
    at_once = max(1, CHUNK // rows)
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        drawn = generator.integers(rows, size=(size, rows))
        drawn += np.arange(size)[:, None] * rows  # each draw counts in a stretch of its own
        counts = np.bincount(drawn.ravel(), minlength=size * rows)
        yield np.ascontiguousarray(counts.reshape(size, rows).T, dtype=np.float64)


def bootstrap(metrics: Sequence[OfWeights], *, rows: int, resamples: int, seed: int) -> Floats:
    """Return every metric on the same resampled rows, ``(metrics, resamples)``.

    Being on the same rows, two lines may be subtracted: that is the paired bootstrap.

    Args:
        metrics: What to compute.
        rows: Number of test rows, ``N``.
        resamples: How often to draw ``N`` rows with replacement.
        seed: Decides the draws.

    Example:
        >>> right = np.array([1.0, 1.0, 0.0, 1.0])
        >>> share = lambda counts: right @ counts / counts.sum(axis=0)
        >>> bootstrap([share], rows=4, resamples=5, seed=0)
        array([[0.5 , 1.  , 0.75, 0.25, 0.25]])
    """
    draws = resample_counts(rows, resamples, seed)
    return np.concatenate([np.stack([metric(c) for metric in metrics]) for c in draws], axis=1)


def percentile_interval(value: float, replicates: Floats, level: float = LEVEL) -> Interval:
    """Return ``value`` between the percentiles of its bootstrap replicates.

    Replicates in which the metric is not defined (no row of a class was drawn) are left out.

    Example:
        >>> percentile_interval(500, np.arange(1001.0))
        Interval(value=500.0, low=25.0..., high=975.0...)
    """
    defined = replicates[~np.isnan(replicates)]
    if np.isnan(value) or len(defined) == 0:
        return Interval(value, np.nan, np.nan)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(low), float(high))
