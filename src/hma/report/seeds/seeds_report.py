"""What the comparison over seeds shows: plain values, nothing of torch, nothing to compute."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Literal

from hma.metrics.resampling import Interval

Kind = Literal["plain", "memory", "simple", "deployed"]
"""What a candidate is: the plain backbone, the memory, a method without a network, or what
answers new rows."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One candidate over the seeds.

    Args:
        name: For people.
        kind: What it is.
        scores: Metric -> its score with each seed.
        to_plain, to_simple: Metric -> mean difference to the plain backbone and to the best
            simple row, with its interval over seeds and rows; empty for that row itself.
        tested: Metric -> p-value of the paired t-test over seeds against the plain backbone; None
            with one seed.
    """

    name: str
    kind: Kind
    scores: Mapping[str, tuple[float, ...]]
    to_plain: Mapping[str, Interval] = field(default_factory=dict)
    to_simple: Mapping[str, Interval] = field(default_factory=dict)
    tested: Mapping[str, float | None] = field(default_factory=dict)

    def mean(self, metric: str) -> float:
        """Return the mean score over the seeds."""
        return fmean(self.scores[metric])

    def deviation(self, metric: str) -> float | None:
        """Return the sample standard deviation over the seeds; None with one."""
        values = self.scores[metric]
        return stdev(values) if len(values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class SeedsTrial:
    """A test set over the seeds.

    Args:
        name: Of the test set.
        rows: Its rows with each seed.
        same_rows: Whether every seed was tested on the same rows.
        standings: The candidates.
        simple: Name of the simple row with the best mean; None without any.
    """

    name: str
    rows: tuple[int, ...]
    same_rows: bool
    standings: tuple[Standing, ...]
    simple: str | None

    def of(self, kind: Kind) -> Standing | None:
        """Return the first candidate of a kind; None if there is none."""
        return next((one for one in self.standings if one.kind == kind), None)

    @property
    def best_simple(self) -> Standing | None:
        """The simple row with the best mean score."""
        return next((one for one in self.standings if one.name == self.simple), None)


@dataclass(frozen=True, kw_only=True)
class SeedsReport:
    """Everything the page shows.

    Args:
        title: Name of the task.
        metrics: Names of the metrics, the one of the verdict first.
        seeds: The seeds, in order.
        tests: Test sets, the one of the verdict first.
        resamples: Draws of the bootstrap.
        pages: Address of the page of each seed that has one.
        deployed: Which method answers new rows with each seed, and why.
        notes: What a reader must know before believing the numbers.
    """

    title: str
    metrics: tuple[str, ...]
    seeds: tuple[int, ...]
    tests: tuple[SeedsTrial, ...]
    resamples: int
    pages: Mapping[int, str] = field(default_factory=dict)
    deployed: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
