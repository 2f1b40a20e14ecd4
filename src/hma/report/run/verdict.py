"""What HMA changed on a test set, in plain sentences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hma.metrics import METRICS
from hma.report.numbers import MISSING, decimals, percent, plain, signed
from hma.report.run.run_report import (
    MEMORY,
    PLAIN,
    ClassResult,
    Comparison,
    NumberResult,
    Result,
    RunReport,
    Trial,
)
from hma.report.statistics import CHANCE, Interval

Outcome = Literal["better", "worse", "chance", "same", "simple", "alone"]


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


def named(result: Result, trial: Trial) -> str:
    """Return the name of a method, with its context where it has more than one."""
    several = sum(other.method == result.method for other in trial.results) > 1
    return f"{result.method}, {result.context}" if several else result.method


def beyond_chance(metric: str, found: Comparison) -> bool:
    """Tell whether a difference is more than luck with the test rows.

    The interval of the difference must leave 0 out; for the accuracy McNemar's exact test
    must agree, and over several seeds the paired t-test.
    """
    ends = found.differences[metric]
    apart = ends.low > 0 or ends.high < 0
    tests = [found.p_over_seeds, found.p_value if METRICS[metric].interval == "wilson" else None]
    return apart and all(p is None or p < CHANCE for p in tests)


def verdict(report: RunReport, trial: Trial, context: str | None = None) -> Verdict:
    """Say what HMA changed on a test set.

    Args:
        report: The report.
        trial: The test set.
        context: Inference context of HMA; its own where None.
    """
    metric = report.metric
    memory = [r for r in trial.results if r.method == MEMORY]
    result = next((r for r in memory if r.context == context), memory[0])
    plain = next((r for r in trial.results if r.method == PLAIN), None)
    simple = best_simple(metric, trial.simple)
    beside = f"{_beside(metric, simple)}{_warning(result)}"
    if plain is None:
        return Verdict(
            "alone",
            "No plain backbone to compare with",
            f"HMA reaches {_phrase(metric, result, trial)}. No plain backbone was trained beside "
            f"it, so whether the memory helps is unknown.{beside}",
        )
    found = next(c for c in trial.comparisons if c.context == result.context)
    values = plain.scores[metric].value, result.scores[metric].value
    outcome, headline = judged(metric, found, *values, simple)
    scores = (
        f"HMA reaches {_phrase(metric, result, trial)}, the plain backbone "
        f"{amount(metric, values[0])}."
    )
    return Verdict(outcome, headline, f"{scores} {_reason(metric, found, outcome)}{beside}")


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
    worse = False
    if isinstance(result, ClassResult):
        worse = result.scores["accuracy"].value < _most_frequent(result)
    elif isinstance(result, NumberResult):
        worse = result.scores["rmse"].value > _deviation(result)
    return f" Mind that {without_looking(result)}." if worse else ""


def _phrase(metric: str, result: Result, trial: Trial) -> str:
    name = METRICS[metric].title
    article = "an" if name[0] in "aAR" else "a"  # an RMSE, an R²
    value = amount(metric, result.scores[metric].value)
    if METRICS[metric].share:
        return f"{value} {name} on {trial.rows} test rows"
    return f"{article} {name} of {value} on {trial.rows} test rows"


Named = tuple[str, float]
"""A row and its score."""


def best_simple(metric: str, rows: Mapping[str, Mapping[str, float]]) -> Named | None:
    """Return the simple row with the best score; None without any.

    Example:
        >>> best_simple("accuracy", {"kNN": {"accuracy": 0.8}, "PARAM": {"accuracy": 0.9}})
        ('PARAM', 0.9)
    """
    scored = [(row, scores[metric]) for row, scores in rows.items() if metric in scores]
    defined = [(row, value) for row, value in scored if not math.isnan(value)]
    return max(defined, key=lambda row: ahead(metric, row[1]), default=None)


def ahead(metric: str, value: float) -> float:
    """Return a score, or a difference, so that more is better."""
    return value if METRICS[metric].larger_is_better else -value


def judged(
    metric: str, found: Comparison, plain: float, memory: float, simple: Named | None
) -> tuple[Outcome, str]:
    """Return what the scores come to: nobody has won whom a simple row reaches.

    Args:
        metric: What they are.
        found: HMA against the plain backbone.
        plain, memory: Their scores.
        simple: The best simple row, if there is one.
    """
    best = max(ahead(metric, plain), ahead(metric, memory))
    if simple is not None and ahead(metric, simple[1]) >= best:
        row = f"{simple[0][:1].upper()}{simple[0][1:]}"
        higher = ahead(metric, simple[1]) > best
        return (
            "simple",
            f"{row} is {'better than both' if higher else 'as good as the better of both'}",
        )
    gain = ahead(metric, found.differences[metric].value)
    if gain == 0 or math.isnan(gain):
        return "same", "No difference"
    word: Outcome = "better" if gain > 0 else "worse"
    if beyond_chance(metric, found):
        return word, f"HMA is {word}, beyond chance"
    return "chance", f"HMA looks {word}, but it could be chance"


def _beside(metric: str, simple: Named | None) -> str:
    if simple is None:
        return ""
    return f" The best simple row, {simple[0]}, reaches {amount(metric, simple[1])}."


def _reason(metric: str, found: Comparison, outcome: Outcome) -> str:
    ends = found.differences[metric]
    apart = found.only_plain + found.only_memory
    unit = " points" if METRICS[metric].share else ""
    said = "is beyond chance" if outcome in ("better", "worse") else "could be chance"
    if outcome == "simple":
        said = "says little where a simple row is as good or better"
    if math.isnan(ends.value):
        return f"{METRICS[metric].title} is not defined on these rows: their labels are all alike."
    span = f"95% interval {change_interval(metric, ends)}{unit}"
    text = (
        f"There is no difference ({span})"
        if ends.value == 0
        else f"The difference of {change(metric, ends.value)}{unit} ({span}) {said}"
    )
    if found.p_value is None:
        return f"{text}."
    if apart == 0:
        return f"{text}: no row is right with one and wrong with the other."
    rows = "row" if apart == 1 else "rows"
    return (
        f"{text}: of the {apart} {rows} that only one of the two gets right, HMA has "
        f"{found.only_memory} (McNemar's exact test on accuracy, p {_compared(found.p_value)})."
    )


def _compared(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
