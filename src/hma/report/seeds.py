"""The same training with several seeds: compared, laid out, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import stdev
from typing import NamedTuple

from markupsafe import Markup

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.charts import Mark, Strip, strip_chart
from hma.report.html import fill
from hma.report.numbers import (
    MISSING,
    capital,
    counted,
    decimals,
    fixed,
    in_percent,
    plain,
    short,
    signed,
)
from hma.report.run_report import DEPLOYED, MEMORY, PLAIN, Result, Trial, style_of
from hma.report.scoring import RESAMPLES, Answers, best_simple, compare
from hma.report.verdict import (
    Verdict,
    amount,
    change,
    change_interval,
    compared,
    judge,
    phrase,
    unit,
)
from hma.targets import Target

SeedAnswers = Mapping[str, Answers]
"""What was said with one seed: test set -> answers, each in its own context."""
LOSSES = ("nll", "mae")
"""What is compared besides the metric of the task, where it serves."""


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
    tests: tuple[Trial, ...]
    resamples: int
    pages: Mapping[int, str] = field(default_factory=dict)
    deployed: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def compare_seeds(
    title: str,
    answers: Mapping[int, SeedAnswers],
    metric: str,
    target: Target,
    resamples: int = RESAMPLES,
) -> SeedsReport:
    """Compare the candidates that all seeds have, paired by seed and by row.

    Args:
        title: Name of the task.
        answers: Of each seed.
        metric: What the verdict is about.
        target: What a label is.
        resamples: Draws of the bootstrap; the same seeds and rows for every number.
    """
    if not answers:
        raise ValueError("answers must hold at least one seed, got none")
    losses = (name for name in LOSSES if METRICS[name].serves(target))
    metrics = tuple(dict.fromkeys([metric, *losses]))
    return SeedsReport(
        title=title,
        metrics=metrics,
        seeds=tuple(answers),
        tests=tuple(
            compare(
                test,
                [found[test] for found in answers.values()],
                metrics,
                target=target,
                resamples=resamples,
                to_simple=True,
            )
            for test in next(iter(answers.values()))
        ),
        resamples=resamples,
    )


class Line(NamedTuple):
    """One candidate in a table."""

    name: str
    style: str
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
        lines: The candidates.
        simple: Name of the best simple baseline; None without any.
        compared: Whether there is a plain backbone to compare with.
    """

    title: str
    lines: tuple[Line, ...]
    simple: str | None
    compared: bool


def sheets(report: SeedsReport, trial: Trial) -> list[Sheet]:
    """Return a table for each metric, that of the verdict first."""
    best = best_simple(report.metrics[0], trial.simple)
    return [_sheet(metric, trial, best[0] if best else None) for metric in report.metrics]


def rows_of(trial: Trial) -> str:
    """Return how many rows were tested, in words.

    Example:
        >>> rows = {"seed_rows": (30, 30), "same_rows": False, "results": (), "comparisons": ()}
        >>> rows_of(Trial(name="t", rows=30, **rows))
        '30 rows, drawn anew with each seed'
    """
    least, most = min(trial.seed_rows), max(trial.seed_rows)
    count = counted(least, "row") if least == most else f"{least} to {most} rows"
    return f"{count}, {'the same' if trial.same_rows else 'drawn anew'} with each seed"


def _sheet(metric: str, trial: Trial, simple: str | None) -> Sheet:
    means = [one.scores[metric].value for one in trial.results]
    better = max if METRICS[metric].larger_is_better else min
    best = better((value for value in means if value == value), default=None)
    return Sheet(
        title=METRICS[metric].title,
        lines=tuple(
            Line(
                name=one.method,
                style=style_of(one.method),
                mean=amount(metric, mean),
                deviation=_deviation(metric, one),
                to_plain=_difference_texts(metric, mean, _ends(trial, one.method, PLAIN, metric)),
                to_simple=_difference_texts(metric, mean, _ends(trial, one.method, simple, metric)),
                best=mean == best,
            )
            for one, mean in zip(trial.results, means, strict=True)
        ),
        simple=simple,
        compared=trial.result(PLAIN) is not None,
    )


def _ends(trial: Trial, method: str, base: str | None, metric: str) -> Interval | None:
    found = None if base is None else trial.comparison(method, base)
    return None if found is None else found.differences[metric]


def _deviation(metric: str, one: Result) -> str:
    values = one.by_seed[metric]
    value = stdev(values) if len(values) > 1 else None
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


def seeds_verdict(report: SeedsReport, trial: Trial) -> Verdict:
    """Say what is gained over the plain backbone on a test set, over the seeds.

    It is about what is deployed, and about the memory where that is the plain backbone itself.
    Better or worse is said only where the interval over seeds and rows leaves 0 out, the paired
    t-test over seeds agrees, and the winner also beats the best simple baseline.
    """
    metric = report.metrics[0]
    plain, subject = trial.result(PLAIN), trial.result(DEPLOYED)
    if subject is None or (plain is not None and subject.by_seed == plain.by_seed):
        subject = trial.result(MEMORY)
    if subject is None or plain is None:
        said = "; ".join(f"{one.method} {_mean(metric, one)}" for one in trial.results)
        return Verdict("alone", "No plain backbone to compare with", f"{capital(said)}.")
    found = trial.comparison(subject.method)
    assert found is not None
    seeds = counted(len(report.seeds), "seed")
    name = "what is deployed" if subject.method == DEPLOYED else subject.method
    simple = best_simple(metric, trial.simple)
    p = found.p_over_seeds
    test = "" if p is None else f"; paired t-test over seeds, p {compared(p)}"
    ends = found.differences[metric]
    said = (
        f"Over {seeds} {phrase(name)} reaches {_mean(metric, subject)}, the plain backbone "
        f"{_mean(metric, plain)}. The mean difference is {change(metric, ends.value)}{unit(metric)}"
        f" (95% interval over seeds and rows {change_interval(metric, ends)}{test})."
        f"{_beside(metric, trial, subject)}{_memory(metric, trial, subject)}"
    )
    if len(report.seeds) < 2:
        return Verdict("alone", "One seed is finished, and one decides nothing", said)
    values = plain.scores[metric].value, subject.scores[metric].value
    outcome, headline = judge(metric, replace(found, method=name), *values, simple)
    return Verdict(outcome, f"{headline} ({seeds})", said)


def _mean(metric: str, one: Result) -> str:
    title = METRICS[metric].title
    value = amount(metric, one.scores[metric].value)
    return f"{value} {title}" if METRICS[metric].share else f"{title} {value}"


def _beside(metric: str, trial: Trial, one: Result) -> str:
    best = best_simple(metric, trial.simple)
    simple = trial.result(best[0]) if best else None
    if simple is None:
        return ""
    said = f" The best simple baseline, {simple.method}, reaches {_mean(metric, simple)}"
    ends = _ends(trial, one.method, simple.method, metric)
    return f"{said}." if ends is None else f"{said}: a difference of {_away(metric, ends)}."


def _memory(metric: str, trial: Trial, subject: Result) -> str:
    memory, ends = trial.result(MEMORY), _ends(trial, MEMORY, PLAIN, metric)
    if memory is None or memory is subject or ends is None:
        return ""
    return (
        f" The {memory.method} alone reaches {_mean(metric, memory)}, {_away(metric, ends)} from "
        "the plain backbone."
    )


def _away(metric: str, ends: Interval) -> str:
    return f"{change(metric, ends.value)}{unit(metric)} ({change_interval(metric, ends)})"


def dot_chart(report: SeedsReport, trial: Trial, metric: str) -> Markup:
    """Draw the scores: a dot for each seed, a bar at the mean."""
    strips = []
    for one in trial.results:
        marks = [
            Mark(value, "seed", f"{one.method}, seed {seed}: {amount(metric, value)}")
            for seed, value in zip(report.seeds, one.by_seed[metric], strict=True)
        ]
        mean = one.scores[metric].value
        marks.append(Mark(mean, "mean", f"{one.method}: mean {amount(metric, mean)}"))
        strips.append(Strip(one.method, style_of(one.method), marks))
    title, share = METRICS[metric].title, METRICS[metric].share
    write = in_percent if share else short
    return strip_chart(f"{title} of every seed", strips, unit=title, write=write)


def seed_sections(report: SeedsReport) -> list[tuple[str, str, str, Markup]]:
    """Return key, name, title and HTML of each section of the page."""
    seen = {"report": report, "sheets": sheets, "judge": seeds_verdict, "amount": amount}
    return [
        (key, name, title, fill(f"seed_{shown}", dot_chart=dot_chart, **seen))
        for key, name, title, shown in (
            ("comparison", "Comparison", "Candidates over the seeds", "comparison"),
            ("dots", "Every seed", "Every seed", "dots"),
            ("seeds", "Pages of the seeds", "Pages of the seeds", "pages"),
            ("reading", "How to read", "How to read this page", "reading"),
        )
    ]
