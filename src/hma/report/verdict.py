"""What the memory, or what is deployed, changed on a test set, and what to try next."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.numbers import MISSING, capital, decimals, percent, plain, signed
from hma.report.run_report import (
    MEMORY,
    MIXTURE,
    PLAIN,
    ClassResult,
    Comparison,
    NumberResult,
    Result,
    RunReport,
    Trial,
)
from hma.report.scoring import ahead, best_simple
from hma.report.statistics import CHANCE

if TYPE_CHECKING:
    from hma.report.sections.memory import Memory

Outcome = Literal["better", "worse", "chance", "same", "simple", "alone"]
Named = tuple[str, float]
"""A row and its score."""
STALE = 0.5
"""Mean staleness from which stored features say little of today's."""
UNEVEN = 2
"""How many times as many rows the largest class has where classes are called uneven."""
LISTED = 5
PRETRAINED = ("timm:", "vit:", "resnet18")
"""How names of backbones for images begin that there are pretrained weights for."""


@dataclass(frozen=True)
class Verdict:
    """What a comparison came to.

    Args:
        outcome: In one word, for colours.
        headline: In a few words.
        sentence: With its numbers.
    """

    outcome: Outcome
    headline: str
    sentence: str


def amount(metric: str, value: float) -> str:
    """Return a value of ``metric``: shares in percent, others as numbers."""
    if math.isnan(value):
        return MISSING
    return percent(value) if METRICS[metric].share else plain(value)


def interval(metric: str, ends: Interval) -> str:
    """Return the ends of an interval.

    Example:
        >>> interval("accuracy", Interval(0.9, 0.85, 0.93))
        '85.0 to 93.0%'
    """
    if math.isnan(ends.low):
        return MISSING
    if METRICS[metric].share:
        return f"{100 * ends.low:.1f} to {100 * ends.high:.1f}%"
    return f"{plain(ends.low)} to {plain(ends.high)}"


def change(metric: str, value: float) -> str:
    """Return a difference with its sign, in points where the metric is a share.

    Example:
        >>> change("accuracy", 0.0278), change("nll", -0.1)
        ('+2.8', '−0.100')
    """
    if math.isnan(value):
        return MISSING
    return signed(100 * value, 1) if METRICS[metric].share else signed(value, decimals(value))


def change_interval(metric: str, ends: Interval) -> str:
    """Return the ends of the interval of a difference."""
    if math.isnan(ends.low):
        return MISSING
    return f"{change(metric, ends.low)} to {change(metric, ends.high)}"


def beyond_chance(metric: str, found: Comparison) -> bool:
    """Tell whether a difference is more than luck with the test rows.

    The interval of the difference must leave 0 out; for the accuracy McNemar's exact test
    must agree, and over several seeds the paired t-test.
    """
    ends = found.differences[metric]
    apart = ends.low > 0 or ends.high < 0
    tests = [found.p_over_seeds, found.p_value if METRICS[metric].interval == "wilson" else None]
    return apart and all(p is None or p < CHANCE for p in tests)


def verdict(
    report: RunReport, trial: Trial, context: str | None = None, method: str | None = None
) -> Verdict:
    """Say what a method changes on a test set against the plain backbone.

    Args:
        report: The report.
        trial: The test set.
        context: Inference context of the method; its own where None.
        method: Which; the deployed one where None, and the memory where that is the plain backbone.
    """
    if trial.unclaimed:
        return Verdict("alone", "Nothing is claimed", trial.unclaimed)
    metric = report.metric
    if method is None:
        method = MEMORY if trial.deployed == PLAIN else trial.deployed
    of_method = [r for r in trial.results if r.method == method]
    result = next((r for r in of_method if r.context == context), of_method[0])
    plain = trial.result(PLAIN)
    others = {row: scores for row, scores in trial.simple.items() if row != method}
    simple = best_simple(metric, others)
    beside = f"{_beside(metric, simple)}{_warning(result)}"
    scores = f"{_subject(method)} reaches {_phrase(metric, result, trial)}"
    if plain is None:
        return Verdict(
            "alone",
            "No plain backbone to compare with",
            f"{scores}. No plain backbone was trained beside it, so whether the memory helps is "
            f"unknown.{beside}",
        )
    found = next(c for c in trial.comparisons if (c.method, c.context) == (method, result.context))
    values = plain.scores[metric].value, result.scores[metric].value
    outcome, headline = judge(metric, found, *values, simple)
    scores = f"{scores}, the plain backbone {amount(metric, values[0])}."
    return Verdict(outcome, headline, f"{scores} {_reason(metric, found, outcome)}{beside}")


def phrase(method: str) -> str:
    """Return the name of a method within a sentence."""
    return f"the {method}" if method in (MIXTURE, MEMORY) else method


def _subject(method: str) -> str:
    """Return the name of a method at the beginning of a sentence."""
    return capital(phrase(method))


def without_looking(result: Result) -> str:
    """Say what would come of answers that do not look at the row; empty if there are none such."""
    if isinstance(result, ClassResult):
        return (
            "always answering the most frequent class would be right on "
            f"{percent(_most_frequent(result))}"
        )
    if isinstance(result, NumberResult):
        return f"always answering the mean would have an RMSE of {plain(_deviation(result))}"
    return ""


def _most_frequent(result: ClassResult) -> float:
    return float(result.confusion.sum(axis=1).max() / result.confusion.sum())


def _deviation(result: NumberResult) -> float:
    return float(result.true.std())


def _warning(result: Result) -> str:
    """Return a warning where not looking at the rows would do better."""
    return f" Mind that {without_looking(result)}." if _is_weak(result) else ""


def _is_weak(result: Result) -> bool:
    """Tell whether not looking at the rows would do better."""
    if isinstance(result, ClassResult):
        return result.scores["accuracy"].value < _most_frequent(result)
    return isinstance(result, NumberResult) and result.scores["rmse"].value > _deviation(result)


def weak_baselines(trial: Trial) -> list[str]:
    """Return a sentence for each baseline that does worse than not looking at the rows."""
    said = []
    for result in trial.results:
        if result.method in (MEMORY, MIXTURE) or not _is_weak(result):
            continue
        name = f"the {PLAIN}" if result.method == PLAIN else result.method
        if isinstance(result, ClassResult):
            reached = f"is right on {percent(result.scores['accuracy'].value)}"
        else:
            reached = f"has an RMSE of {plain(result.scores['rmse'].value)}"
        said.append(
            f"On {trial.rows} {trial.name} rows {name} {reached}, while {without_looking(result)}: "
            "to be better than this baseline says little."
        )
    return said


def _phrase(metric: str, result: Result, trial: Trial) -> str:
    name = METRICS[metric].title
    article = "an" if name[0] in "aAR" else "a"  # an RMSE, an R²
    value = amount(metric, result.scores[metric].value)
    if METRICS[metric].share:
        return f"{value} {name} on {trial.rows} test rows"
    return f"{article} {name} of {value} on {trial.rows} test rows"


def judge(
    metric: str, found: Comparison, plain: float, other: float, simple: Named | None
) -> tuple[Outcome, str]:
    """Return what the scores come to: no win is claimed if a simple baseline matches it.

    Args:
        metric: What they are.
        found: A method against the plain backbone.
        plain, other: Scores of the two.
        simple: The best simple baseline, if there is one.
    """
    best = max(ahead(metric, plain), ahead(metric, other))
    if simple is not None and ahead(metric, simple[1]) >= best:
        higher = ahead(metric, simple[1]) > best
        both = "both"
        if found.method != MEMORY:
            both = f"{phrase(found.method)} and the plain backbone"
        how = f"better than {both}" if higher else f"as well as the better of {both}"
        return "simple", f"{_subject(simple[0])} scores {how}"
    gain = ahead(metric, found.differences[metric].value)
    if gain == 0 or math.isnan(gain):
        return "same", "No difference"
    word: Outcome = "better" if gain > 0 else "worse"
    if beyond_chance(metric, found):
        return word, f"{_subject(found.method)} is {word}, beyond chance"
    return "chance", f"{_subject(found.method)} looks {word}, but it could be chance"


def _beside(metric: str, simple: Named | None) -> str:
    if simple is None:
        return ""
    return f" The best simple baseline, {simple[0]}, reaches {amount(metric, simple[1])}."


def _reason(metric: str, found: Comparison, outcome: Outcome) -> str:
    ends = found.differences[metric]
    apart = found.only_plain + found.only_other
    said = "is beyond chance" if outcome in ("better", "worse") else "could be chance"
    if outcome == "simple":
        said = "says little where a simple baseline is as good or better"
    if math.isnan(ends.value):
        return f"{METRICS[metric].title} is not defined on these rows: their labels are all alike."
    span = f"95% interval {change_interval(metric, ends)}{unit(metric)}"
    text = (
        f"There is no difference ({span})"
        if ends.value == 0
        else f"The difference of {change(metric, ends.value)}{unit(metric)} ({span}) {said}"
    )
    if found.p_value is None:
        return f"{text}."
    if apart == 0:
        return f"{text}: no row is right with one and wrong with the other."
    rows = "row" if apart == 1 else "rows"
    return (
        f"{text}: of the {apart} {rows} that only one of the two gets right, "
        f"{phrase(found.method)} has "
        f"{found.only_other} (McNemar's exact test on accuracy, p {compared(found.p_value)})."
    )


def unit(metric: str) -> str:
    """Return the unit of a difference, after a space; nothing where it has none."""
    return " points" if METRICS[metric].share else ""


def compared(p: float) -> str:
    """Return a p-value as it follows the letter.

    Example:
        >>> compared(0.0004), compared(0.04)
        ('< 0.001', '= 0.040')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def advice(report: RunReport) -> tuple[str, ...]:
    """Return what a user may do next, the most urgent first; empty where nothing stands out."""
    memory = report.tests[0].result(MEMORY)
    options = report.options.get(MEMORY, {})
    held = report.parts.get("memory")
    return (
        *(_not_remembered(held) if held else ()),
        *_never_found(report, memory, options.get("recipe.balance", "none")),
        *_random_start(report, options),
        *(_stale(held, options.get("config.momentum", "")) if held else ()),
        *(_unused_slots(held) if held else ()),
        *_no_help(report),
    )


def _not_remembered(held: "Memory") -> Iterator[str]:
    if held.queue is not None and held.queue.rows == 0:
        yield (
            "The queue is empty, so nothing was read from it: call model.remember(x, y) after "
            "every optimizer step."
        )


def _never_found(report: RunReport, result: Result | None, balance: str) -> Iterator[str]:
    if not isinstance(result, ClassResult):
        return
    rows, right = result.confusion.sum(axis=1), np.diag(result.confusion)
    lost = [report.classes[c] for c in np.flatnonzero((rows > 0) & (right == 0))]
    if not lost:
        return
    named = ", ".join(lost[:LISTED]) + (f" and {len(lost) - LISTED} more" * (len(lost) > LISTED))
    counts = report.splits.get("train")
    uneven = counts is not None and counts.max() >= UNEVEN * max(int(counts.min()), 1)
    remedy = "look at their rows, add more of them, or train longer"
    if uneven and balance == "none":
        remedy = "--balance sampler lets rare classes count as much as frequent ones"
    what = "1 class is" if len(lost) == 1 else f"{len(lost)} classes are"
    yield f"{what} never found in the test rows (recall 0%): {named}. Try: {remedy}."


def _random_start(report: RunReport, options: Mapping[str, str]) -> Iterator[str]:
    named = options.get("backbone", "").startswith(PRETRAINED)
    if report.kind == "image" and named and options.get("weights", "none") == "none":
        yield (
            f"{options['backbone']} learned from these images alone: start it from pretrained "
            "weights with --weights FILE, and train head and memory only with --freeze-backbone."
        )


def _stale(held: "Memory", momentum: str) -> Iterator[str]:
    queue = held.queue
    if queue is None or queue.staleness is None or len(queue.staleness) == 0:
        return
    mean = float(queue.staleness.mean())
    if mean >= STALE:
        now = f" (now {momentum})" if momentum else ""
        yield (
            f"The queue is stale: its rows are {mean:.2f} of their length away from today's. A "
            f"lower --momentum{now} lets them follow sooner; 0 stores today's own."
        )


def _unused_slots(held: "Memory") -> Iterator[str]:
    slots = held.slots
    if slots is None or slots.used is None:
        return
    used, count = int(slots.used.sum()), len(slots.classes)
    fewer = max(int(slots.used.max()), 1)
    if 2 * used <= count and fewer < slots.per_class:
        yield (
            f"{count - used} of {count} slots draw next to no attention: --slots-per-class "
            f"{fewer} would do."
        )


def _no_help(report: RunReport) -> Iterator[str]:
    first = report.tests[0]
    what = None
    if verdict(report, first).outcome == "simple":
        what = "A simple baseline was not beaten"
    elif verdict(report, first, method=MEMORY).outcome == "worse":
        what = "The memory lost"
    if what is not None:
        yield f"{what} on these rows: see 'When the memory does not help' in docs/command-line.md."
