"""How sure a number is: intervals over test rows, a paired test, and calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hma.extras import needed
from hma.metrics import OfWeights
from hma.metrics.resampling import LEVEL, Interval, bootstrap, percentile_interval, resample_counts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CHANCE = 0.05
"""A difference is beyond chance if it would arise less often than this without one."""


@dataclass(frozen=True)
class Calibration:
    """How often a classifier is right when it says how sure it is.

    Shape:
        - ``edges`` ``(K + 1,)``: ends of the bins of confidence, 0 to 1.
        - ``count``, ``confidence``, ``accuracy`` ``(K,)``: rows of each bin, their mean
          confidence and the share of them that is right; NaN in an empty bin.
        - ``error``: expected calibration error, the mean gap of the two over rows.
    """

    edges: Floats
    count: Integers
    confidence: Floats
    accuracy: Floats
    error: float


def wilson(right: int, total: int, level: float = LEVEL) -> Interval:
    """Return a share and its Wilson interval, which stays honest at 0% and 100%.

    Example:
        >>> wilson(20, 20)
        Interval(value=1.0, low=0.8388..., high=1.0)
    """
    if not 0 <= right <= total:
        raise ValueError(f"right must lie between 0 and total={total}, got {right}")
    if total == 0:
        return Interval(np.nan, np.nan, np.nan)
    ends = (
        needed("scipy.stats", "the report")
        .binomtest(right, total)
        .proportion_ci(level, method="wilson")
    )
    return Interval(right / total, float(ends.low), float(ends.high))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of McNemar's exact test on two classifiers and the same rows.

    Rows that both or neither get right say nothing about which is better. Of the others,
    each classifier should be right on half if there is no difference.

    Args:
        only_first: Rows that only the first classifier gets right.
        only_second: Rows that only the second one gets right.

    Example:
        >>> mcnemar(2, 12)
        0.0129...
        >>> mcnemar(0, 0)
        1.0
    """
    if only_first + only_second == 0:
        return 1.0
    test = needed("scipy.stats", "the report").binomtest(only_first, only_first + only_second, 0.5)
    return float(test.pvalue)


def paired_t_test(differences: Sequence[float]) -> float | None:
    """Return the two-sided p-value of a mean difference over seeds; None with fewer than two.

    Example:
        >>> round(paired_t_test([0.1, 0.2, 0.3]), 4), paired_t_test([0.1])
        (0.0742, None)
    """
    count = len(differences)
    if count < 2:
        return None
    mean, error = np.mean(differences), np.std(differences, ddof=1) / np.sqrt(count)
    if error < 1e-12:  # no spread at all: whatever there is, is there with every seed
        return 1.0 if abs(mean) < 1e-12 else 0.0
    scaled = abs(mean) / error
    return float(2 * needed("scipy.stats", "the report").t.sf(scaled, count - 1))


def student_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return a mean and its Student interval; the ends of a single value are not known.

    Example:
        >>> student_interval([1.0, 2.0, 3.0])
        Interval(value=2.0, low=-0.484..., high=4.484...)
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, np.nan, np.nan)
    error = float(np.std(values, ddof=1) / np.sqrt(count))
    reach = float(needed("scipy.stats", "the report").t.ppf((1 + level) / 2, count - 1)) * error
    return Interval(mean, mean - reach, mean + reach)


def bootstrap_over_seeds(
    metrics: Sequence[Sequence[OfWeights]],
    *,
    rows: Sequence[int],
    resamples: int,
    seed: int,
    same_rows: bool = False,
) -> Floats:
    """Return the mean over seeds of every metric, ``(metrics, resamples)``: two kinds of luck.

    A draw takes as many seeds as there are, with replacement, and for each of them as many of its
    test rows. Every metric sees the same draws, so two lines may be subtracted. With one seed this
    is :func:`bootstrap`.

    Args:
        metrics: What to compute, in the same order for each seed.
        rows: Number of test rows of each seed.
        resamples: How often to draw.
        seed: Decides the draws.
        same_rows: Whether all seeds were tested on the same rows: a draw then takes the same for
            all, since their luck is shared.

    Example:
        >>> right = [np.array([1.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, 0.0])]
        >>> shares = [[lambda counts, r=r: r @ counts / counts.sum(axis=0)] for r in right]
        >>> bootstrap_over_seeds(shares, rows=[4, 4], resamples=5, seed=0)
        array([[0.25 , 0.875, 0.125, 0.5  , 0.375]])
    """
    taken = np.concatenate(list(resample_counts(len(rows), resamples, seed + len(rows))), axis=1)
    total = np.zeros((len(metrics[0]), resamples))
    for place, (own, count) in enumerate(zip(metrics, rows, strict=True)):
        times = taken[place].astype(np.int64)  # how often each draw takes this seed
        if same_rows:
            drawn = bootstrap(own, rows=count, resamples=resamples, seed=seed)
            total += np.where(times > 0, times * drawn, 0.0)
        elif times.sum():
            drawn = bootstrap(own, rows=count, resamples=int(times.sum()), seed=seed + place)
            draws = np.repeat(np.arange(resamples), times)
            total += [np.bincount(draws, line, minlength=resamples) for line in drawn]
    return total / len(rows)


@dataclass(frozen=True)
class Draws:
    """Scores of candidates with each seed, and their means in every resample.

    Args:
        metrics: Names of the metrics.
        scores: With each seed, ``(candidates, metrics, seeds)``.
        means: Over the seeds of each resample, ``(candidates, metrics, resamples)``.
    """

    metrics: tuple[str, ...]
    scores: Floats
    means: Floats

    @classmethod
    def of(
        cls,
        seeds: Sequence[Sequence[Mapping[str, OfWeights]]],
        *,
        rows: Sequence[int],
        resamples: int,
        seed: int,
        same_rows: bool = False,
    ) -> "Draws":
        """Score and resample; a single run is one seed.

        Args:
            seeds: For each seed every metric of every candidate.
            rows, resamples, seed, same_rows: As :func:`bootstrap_over_seeds` takes them.
        """
        asked = [[metric for one in own for metric in one.values()] for own in seeds]
        drawn = bootstrap_over_seeds(
            asked, rows=rows, resamples=resamples, seed=seed, same_rows=same_rows
        )
        once = [np.ones((count, 1)) for count in rows]
        scores = np.array(
            [
                [metric(all_rows)[0] for metric in own]
                for own, all_rows in zip(asked, once, strict=True)
            ]
        )
        shape = len(seeds[0]), len(seeds[0][0])
        return cls(
            tuple(seeds[0][0]),
            scores.T.reshape(*shape, len(seeds)),
            drawn.reshape(*shape, resamples),
        )

    def scored(self, one: int) -> dict[str, Interval]:
        """Return the mean scores of a candidate between the percentiles of its resamples."""
        return {
            metric: percentile_interval(float(self.scores[one, i].mean()), self.means[one, i])
            for i, metric in enumerate(self.metrics)
        }

    def difference(self, one: int, other: int | None) -> dict[str, Interval]:
        """Return how far a candidate is ahead of another; nothing of itself or of none."""
        if other is None or one == other:
            return {}
        return {
            metric: percentile_interval(
                float((self.scores[one, i] - self.scores[other, i]).mean()),
                self.means[one, i] - self.means[other, i],
            )
            for i, metric in enumerate(self.metrics)
        }

    def tested(self, one: int, other: int | None) -> dict[str, float | None]:
        """Return the p-value of each difference by the paired t-test over seeds."""
        if other is None or one == other:
            return {}
        apart = self.scores[one] - self.scores[other]
        return {m: paired_t_test(apart[i].tolist()) for i, m in enumerate(self.metrics)}


def calibration(probabilities: Floats, labels: Integers, bins: int = 15) -> Calibration:
    """Return the reliability of the largest probability, in bins of equal width.

    Args:
        probabilities: Probability of each class, ``(N, C)``.
        labels: True class ids ``(N,)``.
        bins: Number of bins; a bin holds its upper end, not its lower one.

    Example:
        >>> sure = np.array([[0.9, 0.1], [0.9, 0.1]])
        >>> round(calibration(sure, np.array([0, 1])).error, 6)
        0.4
    """
    if len(labels) == 0:
        raise ValueError("labels must hold at least one row, got none")
    edges = np.linspace(0, 1, bins + 1)
    confidence = probabilities.max(axis=1)
    right = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    places = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(places, minlength=bins)
    filled = np.where(count > 0, count, np.nan)
    mean_confidence = np.bincount(places, confidence, minlength=bins) / filled
    accuracy = np.bincount(places, right, minlength=bins) / filled
    gaps = np.abs(accuracy - mean_confidence)
    error = float(np.nansum(gaps * count) / len(labels))
    return Calibration(edges, count.astype(np.int64), mean_confidence, accuracy, error)


def evenly_spaced(count: int, most: int) -> Integers:
    """Return places of at most ``most`` of ``count`` rows, evenly spread over all.

    Example:
        >>> evenly_spaced(9, 3), evenly_spaced(2, 3)
        (array([0, 4, 8]), array([0, 1]))
    """
    places = np.linspace(0, max(count - 1, 0), min(most, count))
    return np.unique(places.astype(np.int64))
