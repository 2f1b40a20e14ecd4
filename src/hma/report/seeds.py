"""The same training with several seeds: compared, laid out, and what it comes to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.numbers import MISSING, counted, decimals, fixed, plain, signed
from hma.report.run_report import Comparison
from hma.report.scoring import RESAMPLES
from hma.report.statistics import Draws
from hma.report.verdict import (
    Verdict,
    ahead,
    amount,
    change,
    change_interval,
    compared,
    judge,
    phrase,
    unit,
)
from hma.targets import Target

Kind = Literal["plain", "memory", "simple", "deployed"]
"""What a candidate is: the plain backbone, the memory, a method without a network, or what
answers new rows."""
LOSSES = ("nll", "mae")
"""What is compared besides the metric of the task, where it serves."""
DEPLOYED = "what is deployed"


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


@dataclass(frozen=True)
class Candidate:
    """A method that was trained with every seed."""

    name: str
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class SeedAnswers:
    """What was said of the test rows of one seed.

    Args:
        seed: The seed.
        target: What a label is; the scale of a number may differ from seed to seed.
        labels: Test set -> true labels.
        places: Test set -> which rows of the data these are.
        said: Candidate -> test set -> logits ``(N, outputs)``, as it answers new rows.
    """

    seed: int
    target: Target
    labels: Mapping[str, Tensor]
    places: Mapping[str, Sequence[int]]
    said: Mapping[Candidate, Mapping[str, Tensor]]


def compare_seeds(
    title: str,
    answers: Sequence[SeedAnswers],
    metric: str,
    *,
    resamples: int = RESAMPLES,
    draws: int = 0,
) -> SeedsReport:
    """Compare the candidates that all seeds have, paired by seed and by row.

    Args:
        title: Name of the task.
        answers: Of each seed.
        metric: What the verdict is about.
        resamples: Draws of the bootstrap; the same seeds and rows for every number.
        draws: Decides them.
    """
    if not answers:
        raise ValueError("answers must hold at least one seed, got none")
    losses = (name for name in LOSSES if METRICS[name].serves(answers[0].target))
    metrics = tuple(dict.fromkeys([metric, *losses]))
    return SeedsReport(
        title=title,
        metrics=metrics,
        seeds=tuple(found.seed for found in answers),
        tests=tuple(_trial(name, answers, metrics, resamples, draws) for name in answers[0].labels),
        resamples=resamples,
    )


def _trial(
    name: str, answers: Sequence[SeedAnswers], metrics: Sequence[str], resamples: int, draws: int
) -> SeedsTrial:
    shared = [c for c in answers[0].said if all(c in found.said for found in answers)]
    rows = [len(found.labels[name]) for found in answers]
    asked = [
        [
            {
                m: METRICS[m].weighted(
                    found.said[c][name].double(), found.labels[name], found.target
                )
                for m in metrics
            }
            for c in shared
        ]
        for found in answers
    ]
    first = answers[0]
    same_rows = all(
        found.places[name] == first.places[name]
        and torch.equal(found.labels[name], first.labels[name])
        for found in answers
    )
    drawn = Draws.of(asked, rows=rows, resamples=resamples, seed=draws, same_rows=same_rows)
    standings = [
        Standing(
            name=candidate.name,
            kind=candidate.kind,
            scores={m: tuple(drawn.scores[c, i].tolist()) for i, m in enumerate(metrics)},
        )
        for c, candidate in enumerate(shared)
    ]
    simple = _best(standings, metrics[0])
    plain = next((c for c, one in enumerate(standings) if one.kind == "plain"), None)
    return SeedsTrial(
        name=name,
        rows=tuple(rows),
        same_rows=same_rows,
        standings=tuple(
            replace(
                one,
                to_plain=drawn.difference(c, plain),
                to_simple=drawn.difference(c, simple),
                tested=drawn.tested(c, plain),
            )
            for c, one in enumerate(standings)
        ),
        simple=None if simple is None else standings[simple].name,
    )


def _best(standings: Sequence[Standing], metric: str) -> int | None:
    """Return the place of the simple row with the best mean; None without any."""
    simple = [c for c, one in enumerate(standings) if one.kind == "simple"]
    defined = [c for c in simple if not np.isnan(standings[c].mean(metric))]
    best: Callable[[int], float] = lambda c: ahead(metric, standings[c].mean(metric))  # noqa: E731
    return max(defined, key=best, default=None)


@dataclass(frozen=True)
class Line:
    """One candidate in a table."""

    name: str
    kind: str
    mean: str
    deviation: str
    to_plain: tuple[str, str]
    to_simple: tuple[str, str]
    best: bool


@dataclass(frozen=True)
class Sheet:
    """The candidates by one metric.

    Args:
        title: Of the metric.
        unit: Of differences, such as 'points'; empty for none.
        lines: The candidates.
        simple: Name of the best simple row; None without any.
    """

    title: str
    unit: str
    lines: tuple[Line, ...]
    simple: str | None

    @property
    def compared(self) -> bool:
        """Whether there is a plain backbone to compare with."""
        return any(line.kind == "plain" for line in self.lines)


def sheets(report: SeedsReport, trial: SeedsTrial) -> list[Sheet]:
    """Return a table for each metric, that of the verdict first."""
    return [_sheet(metric, trial) for metric in report.metrics]


def rows_of(trial: SeedsTrial) -> str:
    """Return how many rows were tested, in words.

    Example:
        >>> rows_of(SeedsTrial(name="t", rows=(30, 30), same_rows=False, standings=(), simple=None))
        '30 rows, drawn anew with each seed'
    """
    least, most = min(trial.rows), max(trial.rows)
    count = counted(least, "row") if least == most else f"{least} to {most} rows"
    return f"{count}, {'the same' if trial.same_rows else 'drawn anew'} with each seed"


def _sheet(metric: str, trial: SeedsTrial) -> Sheet:
    means = [one.mean(metric) for one in trial.standings]
    better = max if METRICS[metric].larger_is_better else min
    best = better((value for value in means if value == value), default=None)
    return Sheet(
        title=METRICS[metric].title,
        unit="points" if METRICS[metric].share else "",
        lines=tuple(
            Line(
                name=one.name,
                kind=one.kind,
                mean=amount(metric, mean),
                deviation=_deviation_text(metric, one),
                to_plain=_difference_texts(metric, mean, one.to_plain.get(metric)),
                to_simple=_difference_texts(metric, mean, one.to_simple.get(metric)),
                best=mean == best,
            )
            for one, mean in zip(trial.standings, means, strict=True)
        ),
        simple=trial.simple,
    )


def _deviation_text(metric: str, one: Standing) -> str:
    value = one.deviation(metric)
    if value is None or value != value:
        return MISSING
    return fixed(100 * value, 1) if METRICS[metric].share else plain(value)


def _difference_texts(metric: str, mean: float, ends: Interval | None) -> tuple[str, str]:
    """Return a difference and the ends of its interval, with as many decimals as the mean has."""
    if ends is None or ends.value != ends.value:
        return MISSING, ""
    times, digits = (100, 1) if METRICS[metric].share else (1, decimals(mean))
    value, low, high = (signed(times * v, digits) for v in (ends.value, ends.low, ends.high))
    return value, f"{low} to {high}"


def seeds_verdict(report: SeedsReport, trial: SeedsTrial) -> Verdict:
    """Say what is gained over the plain backbone on a test set, over the seeds.

    It is about what is deployed, and about the memory where that is the plain backbone itself.
    Better or worse is said only where the interval over seeds and rows leaves 0 out, the paired
    t-test over seeds agrees, and the winner also beats the best simple row.
    """
    metric = report.metrics[0]
    plain, simple = trial.of("plain"), trial.best_simple
    subject = _subject(trial, plain)
    if subject is None or plain is None:
        said = "; ".join(f"{one.name} {_mean(metric, one)}" for one in trial.standings)
        return Verdict(
            "alone", "No plain backbone to compare with", f"{said[:1].upper()}{said[1:]}."
        )
    seeds = counted(len(report.seeds), "seed")
    name = DEPLOYED if subject.kind == "deployed" else subject.name
    said = (
        f"Over {seeds} {phrase(name)} reaches {_mean(metric, subject)}, the plain backbone "
        f"{_mean(metric, plain)}. {_difference(metric, subject)}{_beside(metric, subject, simple)}"
        f"{_memory(metric, trial, subject)}"
    )
    if len(report.seeds) < 2:
        return Verdict("alone", "One seed is finished, and one decides nothing", said)
    found = Comparison(
        method=name,
        context="",
        differences=subject.to_plain,
        p_over_seeds=subject.tested.get(metric),
    )
    named = None if simple is None else (simple.name, simple.mean(metric))
    outcome, headline = judge(metric, found, plain.mean(metric), subject.mean(metric), named)
    return Verdict(outcome, f"{headline} ({seeds})", said)


def _subject(trial: SeedsTrial, plain: Standing | None) -> Standing | None:
    deployed = trial.of("deployed")
    if deployed is None or (plain is not None and deployed.scores == plain.scores):
        return trial.of("memory")
    return deployed


def _mean(metric: str, one: Standing) -> str:
    title = METRICS[metric].title
    value = amount(metric, one.mean(metric))
    return f"{value} {title}" if METRICS[metric].share else f"{title} {value}"


def _difference(metric: str, one: Standing) -> str:
    p = one.tested[metric]
    test = "" if p is None else f"; paired t-test over seeds, p {compared(p)}"
    ends = one.to_plain[metric]
    span = f"95% interval over seeds and rows {change_interval(metric, ends)}"
    return f"The mean difference is {change(metric, ends.value)}{unit(metric)} ({span}{test})."


def _beside(metric: str, one: Standing, simple: Standing | None) -> str:
    if simple is None:
        return ""
    said = f" The best simple row, {simple.name}, reaches {_mean(metric, simple)}"
    ends = one.to_simple.get(metric)
    return f"{said}." if ends is None else f"{said}: a difference of {_away(metric, ends)}."


def _memory(metric: str, trial: SeedsTrial, subject: Standing) -> str:
    memory = trial.of("memory")
    if memory is None or memory is subject or metric not in memory.to_plain:
        return ""
    away = _away(metric, memory.to_plain[metric])
    return (
        f" The {memory.name} alone reaches {_mean(metric, memory)}, {away} from the plain backbone."
    )


def _away(metric: str, ends: Interval) -> str:
    return f"{change(metric, ends.value)}{unit(metric)} ({change_interval(metric, ends)})"
