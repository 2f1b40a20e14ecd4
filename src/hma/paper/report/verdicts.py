"""Every published number beside ours, and whether ours confirms it, by one rule."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from hma.extras import needed
from hma.metrics import METRICS
from hma.metrics.resampling import LEVEL, Interval
from hma.paper.report.scores import Spread, settled
from hma.paper.report.table_report import TableReport
from hma.paper.table import FULL, TINY, Cell, Published, Table

Verdict = Literal["confirmed", "not confirmed", "open"]
Scale = Literal["as published", "reduced", "not available"]
ORDER = (*FULL, TINY, "small")
"""Budgets that a number is taken from, the first that has it; never from a smoke run."""
DEVIATIONS = 2.0
"""A value is confirmed within so many of the published standard deviations."""
POINT = 0.01
"""A difference too small to speak of: a percent of accuracy or ROC-AUC, 0.01 of Matthews."""
HOUR = 3600


class Source(NamedTuple):
    """Where a number is measured: the report of a budget, and the row that stands for it."""

    report: TableReport
    row: str


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number of a table beside what is published of it.

    Args:
        table, task, row: Which.
        published: Mean and standard deviation; None where the paper has no such row.
        measured: Ours over seeds.
        difference: Ours minus published, with the 95% interval of both runs' seeds.
        budget: What it was measured with; empty where it was not.
        wanted: Number of seeds that the budget asks for.
        scale: Whether it is measured as published.
        how: What is less than published, or why there is nothing.
        verdict: By :func:`verdict_of`.
        seconds: Of the processor, over the records.
        command: Repeats it.
    """

    table: Table
    task: str
    row: str
    published: Published | None
    measured: Spread | None
    difference: Interval | None
    budget: str
    wanted: int
    scale: Scale
    how: str
    verdict: Verdict
    seconds: float
    command: str


def welch_interval(
    ours: Spread, published: Published, seeds: int, level: float = LEVEL
) -> Interval:
    """Return ours minus published, with Welch's interval of two means over seeds.

    Args:
        ours: Over our seeds; a single one has no interval.
        published: Mean and standard deviation.
        seeds: How many the published mean is over.
        level: Of the interval.

    Example:
        >>> found = welch_interval(Spread(72.0, 2.0, 3), (70.0, 1.0), 10)
        >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
        (2.0, -2.54, 6.54)
    """
    mean, deviation = published
    value = ours.mean - mean
    if ours.std is None:
        return Interval(value, math.nan, math.nan)
    own, other = ours.std**2 / ours.count, deviation**2 / seeds
    if own + other == 0:
        return Interval(value, value, value)
    freedom = (own + other) ** 2 / (own**2 / (ours.count - 1) + other**2 / (seeds - 1))
    reach = float(needed("scipy.stats", "the verdicts").t.ppf((1 + level) / 2, freedom))
    reach *= math.sqrt(own + other)
    return Interval(settled(value), settled(value - reach), settled(value + reach))


def verdict_of(difference: Interval | None, point: float, margin: float, scale: Scale) -> Verdict:
    """Return what a difference with its interval says of a published value.

    Args:
        difference: Ours minus published.
        point: A difference too small to speak of.
        margin: How far apart two runs of the same may lie.
        scale: A value is never confirmed or refuted at a smaller scale than published.

    Example:
        >>> verdict_of(Interval(0.2, -0.5, 0.9), 0.5, 1.0, "as published")
        'confirmed'
        >>> verdict_of(Interval(0.2, -0.5, 0.9), 0.5, 1.0, "reduced")
        'open'
        >>> verdict_of(Interval(3.0, 0.5, 5.5), 0.5, 9.0, "as published")
        'not confirmed'
    """
    if difference is None or scale != "as published" or math.isnan(difference.low):
        return "open"
    reach = max(-difference.low, difference.high)
    if reach <= point:
        return "confirmed"
    if difference.low > 0 or difference.high < 0:
        return "not confirmed"
    return "confirmed" if reach <= margin else "open"


def numbers_of(reports: Iterable[TableReport]) -> list[Number]:
    """Return every number of tables that is published or measured, in the order of the tables.

    Args:
        reports: Of all budgets of each table; smoke runs are passed over.
    """
    found: list[Number] = []
    by_key: dict[str, list[TableReport]] = {}
    for report in reports:
        by_key.setdefault(report.table.key, []).append(report)
    for held in by_key.values():
        held = sorted(
            (report for report in held if report.budget in ORDER),
            key=lambda report: ORDER.index(report.budget),
        )
        places = dict.fromkeys(place for report in held for place in report.places)
        table = held[0].table
        places |= {(t, row): None for row, cells in table.published.items() for t in cells}
        ordered = sorted(places, key=lambda place: _place(table, *place))
        found += [n for task, row in ordered if (n := _number(held, task, row)) is not None]
    return found


def _place(table: Table, task: str, row: str) -> tuple[int, int]:
    return [*table.problems].index(task), [*table.rows].index(row)


def source_of(held: Sequence[TableReport], task: str, row: str) -> Source | None:
    """Return where a row is measured on a task; a retired row stands in for that of today.

    Args:
        held: Reports of a table, the largest budget first.
        task, row: Which.
    """
    table = held[0].table
    instead = [name for name, one in table.rows.items() if one.instead_of == row]
    for name in (row, *instead):
        for report in held:
            entry = report.entries.get((task, name))
            if entry is not None and entry.scores:
                return Source(report, name)
    return None


def _number(held: Sequence[TableReport], task: str, row: str) -> Number | None:
    table = held[0].table
    published = table.published.get(row, {}).get(task)
    source = source_of(held, task, row)
    if source is None:
        return None if published is None else _absent(table, task, row, published)
    if published is None and table.rows[row].instead_of:
        return None  # shown as the number of the row that it stands in for, or not at all
    report, own = source
    entry, budget = report.entries[task, own], table.budget(report.budget)
    reduced = report.budget not in FULL or bool(budget.differs)
    how = budget.differs if report.budget in FULL else budget.what
    if own != row:
        how = "; ".join(part for part in (how, f"row {own}: {table.rows[own].what}") if part)
    scale: Scale = "reduced" if reduced else "as published"
    difference = None
    if published is not None and entry.measured is not None:
        difference = welch_interval(entry.measured, published, len(table.seeds))
    cells = [Cell(table.key, report.budget, task, own, seed) for seed in entry.scores]
    return Number(
        table=table,
        task=task,
        row=row,
        published=published,
        measured=entry.measured,
        difference=difference,
        budget=report.budget,
        wanted=entry.wanted,
        scale=scale,
        how=how,
        verdict=verdict_of(
            difference,
            POINT * METRICS[table.metric].scale,
            DEVIATIONS * published[1] if published else 0.0,
            scale,
        ),
        seconds=sum(report.held[cell].seconds for cell in cells),
        command=command_of(table.key, report.budget, task, row, entry.wanted),
    )


def _absent(table: Table, task: str, row: str, published: Published) -> Number:
    reasons = [why for what, why in table.unmeasured.items() if fnmatchcase(task, what)]
    budget = next(name for name in FULL if name in table.budgets)
    seeds = table.budget(budget).seeds
    return Number(
        table=table,
        task=task,
        row=row,
        published=published,
        measured=None,
        difference=None,
        budget="",
        wanted=seeds,
        scale="not available",
        how=reasons[0] if reasons else "not measured yet",
        verdict="open",
        seconds=0.0,
        command=command_of(table.key, budget, task, row, seeds),
    )


def command_of(key: str, budget: str, task: str, row: str, seeds: int) -> str:
    """Return the command that measures a number with its seeds."""
    return f"hma run {key} --budget {budget} --only '{task}/{row}' --seeds {seeds}"
