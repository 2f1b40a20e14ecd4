"""The comparison over seeds as a person reads it: one table of texts for each metric."""

from dataclasses import dataclass

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.numbers import MISSING, counted, decimals, fixed, plain, signed
from hma.report.run.verdict import amount
from hma.report.seeds.seeds_report import SeedsReport, SeedsTrial, Standing


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
                deviation=_deviation(metric, one),
                to_plain=_difference(metric, mean, one.to_plain.get(metric)),
                to_simple=_difference(metric, mean, one.to_simple.get(metric)),
                best=mean == best,
            )
            for one, mean in zip(trial.standings, means, strict=True)
        ),
        simple=trial.simple,
    )


def _deviation(metric: str, one: Standing) -> str:
    value = one.deviation(metric)
    if value is None or value != value:
        return MISSING
    return fixed(100 * value, 1) if METRICS[metric].share else plain(value)


def _difference(metric: str, mean: float, ends: Interval | None) -> tuple[str, str]:
    """Return a difference and the ends of its interval, with as many decimals as the mean has."""
    if ends is None or ends.value != ends.value:
        return MISSING, ""
    times, digits = (100, 1) if METRICS[metric].share else (1, decimals(mean))
    value, low, high = (signed(times * v, digits) for v in (ends.value, ends.low, ends.high))
    return value, f"{low} to {high}"
