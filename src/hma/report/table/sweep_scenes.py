"""Scores over the sizes of both memories, and whether they say what is read off such a picture."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import NamedTuple

from hma.paper.table import SizeSweep, Table
from hma.report.looks import Look
from hma.report.numbers import MISSING, counted, fixed
from hma.report.pictures import Check, HeatMap, Line, Plot, Point, Scene, Series
from hma.report.statistics import student_interval
from hma.report.table import scores
from hma.report.table.pairing import settled
from hma.report.table.table_report import Entry

Entries = Mapping[tuple[str, str], Entry]
Sizes = tuple[int, int]
"""Rows of the real memory, and slots of a class."""
Scores = Mapping[Sizes, float]
"""Of one seed."""
DIGITS = 2
ABOUT = (
    "Means over seeds; bands are one sample standard deviation wide on either side. Every number "
    "below is computed seed by seed, then shown with Student's 95% interval over seeds: a reading "
    "holds if the interval lies on its side of 0, is denied on the other side, else is open."
)


class Reading(NamedTuple):
    """What is read off the picture, as a number of each seed.

    Args:
        claim: In words.
        what: How it is computed.
        of: From the scores of a seed to the number.
        sign: 1 where the claim is a number above 0, -1 where below.
    """

    claim: str
    what: str
    of: Callable[[Scores], float]
    sign: int


def sweep_scenes(table: Table, entries: Entries) -> Iterator[Scene]:
    """Yield the picture of each task that has a score for any of the sizes."""
    for picture in table.pictures:
        if isinstance(picture, SizeSweep):
            for task in table.problems:
                asked = {s: row for s, row in picture.sizes.items() if (task, row) in entries}
                if any(_mean(entries, task, row) is not None for row in asked.values()):
                    shown = replace(picture, sizes=asked)
                    yield _scene(shown, table.metric, task, entries)


def _scene(picture: SizeSweep, metric: str, task: str, entries: Entries) -> Scene:
    checks = tuple(_checks(picture, task, entries))
    said = [f"{c.what.partition(':')[0]}: {c.outcome}, {c.measured}." for c in checks]
    return Scene(
        name=f"sizes-{task}",
        title=f"{picture.title}: {task}",
        panels=(_lines(picture, metric, task, entries), _map(picture, metric, task, entries)),
        columns=1,
        finding=" ".join(said) or "Too little is measured to check what is read off it.",
        checks=checks,
        about=ABOUT,
    )


# ------------------------------------------------------------------------------------- the picture


def _axes(picture: SizeSweep) -> tuple[list[int], list[int]]:
    """Return the sizes of the real memory, and those of the slots."""
    return sorted({m1 for m1, _ in picture.sizes}), sorted({m2 for _, m2 in picture.sizes})


def _lines(picture: SizeSweep, metric: str, task: str, entries: Entries) -> Plot:
    real, slots = _axes(picture)
    series = []
    for place, m1 in enumerate(real):
        rows = [(x, picture.sizes.get((m1, m2)), f"m1 {m1}, m2 {m2}") for x, m2 in enumerate(slots)]
        series.append(_series(f"m1 = {m1}", Look.of(place), rows, metric, task, entries))
    for place, row in enumerate(picture.references):
        look = Look(colour=None, dashes=place + 1, hollow=True)
        level = [(x, row, row) for x in range(len(slots))]
        series.append(_series(row, look, level, metric, task, entries))
    return Plot(
        title="over the slots of a class",
        series=tuple(one for one in series if one.points),
        x_title="slots of a class, m2 (0: attention between datapoints alone)",
        y_title=scores.title(metric),
        x_ticks=tuple((float(x), str(m2)) for x, m2 in enumerate(slots)),
    )


def _series(
    name: str,
    look: Look,
    rows: Sequence[tuple[int, str | None, str]],
    metric: str,
    task: str,
    entries: Entries,
) -> Series:
    points = []
    for x, row, words in rows:
        found = None if row is None else entries.get((task, row))
        spread = None if found is None else found.measured
        if spread is not None and math.isfinite(spread.mean):
            reach = spread.std or 0.0
            said = (f"{words}: {scores.spread(metric, spread)}", counted(spread.count, "seed"))
            low, high = spread.mean - reach, spread.mean + reach
            points.append(Point(float(x), spread.mean, said, low=low, high=high))
    return Series(name=name, look=look, points=tuple(points), joined=True)


def _map(picture: SizeSweep, metric: str, task: str, entries: Entries) -> HeatMap:
    real, slots = _axes(picture)
    values = tuple(
        tuple(_mean(entries, task, picture.sizes.get((m1, m2))) for m2 in slots) for m1 in real
    )
    return HeatMap(
        title="both sizes",
        values=values,
        rows=tuple(Line(f"m1 = {m1}") for m1 in real),
        columns=tuple(Line(f"m2 = {m2}") for m2 in slots),
        row_groups=tuple((str(m1), 1) for m1 in real),
        column_groups=tuple((str(m2), 1) for m2 in slots),
        row_title="real memory, m1",
        column_title="slots of a class, m2",
        value_title=scores.title(metric),
        digits=DIGITS,
        written=True,
    )


def _mean(entries: Entries, task: str, row: str | None) -> float | None:
    entry = None if row is None else entries.get((task, row))
    if entry is None or entry.measured is None or not math.isfinite(entry.measured.mean):
        return None
    return entry.measured.mean


# ------------------------------------------------------------------------------------ the readings


def readings(real: Sequence[int], slots: Sequence[int]) -> tuple[Reading, ...]:
    """Return the paper's readings of such a picture, as numbers of a seed.

    Args:
        real: Sizes of the real memory, 0 first.
        slots: Slots of a class, 0 first, at least two more.
    """
    with_memory, without = [m1 for m1 in real if m1], [m1 for m1 in real if not m1]
    inner, largest = slots[1:-1], slots[-1]

    def mean(found: Scores, rows: Sequence[int], columns: Sequence[int]) -> float:
        return fmean(found[m1, m2] for m1 in rows for m2 in columns)

    def gain(found: Scores, rows: Sequence[int]) -> float:
        return mean(found, rows, slots[1:]) - mean(found, rows, [0])

    def spread(found: Scores, rows: Sequence[int]) -> float:
        return fmean(stdev(found[m1, m2] for m2 in slots) for m1 in rows)

    return (
        Reading(
            "slots help",
            f"m2 in {_several(inner)} minus m2 = 0",
            lambda found: mean(found, real, inner) - mean(found, real, [0]),
            1,
        ),
        Reading(
            "too many slots hurt",
            f"m2 = {largest} minus m2 in {_several(inner)}",
            lambda found: mean(found, real, [largest]) - mean(found, real, inner),
            -1,
        ),
        Reading(
            "real memory makes it more stable",
            "deviation over m2, m1 > 0 minus m1 = 0",
            lambda found: spread(found, with_memory) - spread(found, without),
            -1,
        ),
        Reading(
            "slots give more with real memory",
            "all m2 > 0 minus m2 = 0, m1 > 0 minus m1 = 0",
            lambda found: gain(found, with_memory) - gain(found, without),
            1,
        ),
    )


def _checks(picture: SizeSweep, task: str, entries: Entries) -> Iterator[Check]:
    real, slots = _axes(picture)
    whole = len(picture.sizes) == len(real) * len(slots)
    if not whole or 0 not in real or 0 not in slots or len(real) < 2 or len(slots) < 3:
        return
    held = {size: entries.get((task, row)) for size, row in picture.sizes.items()}
    seeds = set.intersection(*(set(entry.scores) if entry else set() for entry in held.values()))
    if not seeds:
        return
    by_seed = [{s: e.scores[seed] for s, e in held.items() if e} for seed in sorted(seeds)]
    for reading in readings(real, slots):
        found = student_interval([settled(reading.of(one)) for one in by_seed])
        known = math.isfinite(found.low)
        ends = f"{fixed(found.low, DIGITS)} to {fixed(found.high, DIGITS)}" if known else MISSING
        yield Check(
            where=f"{task}, {counted(len(by_seed), 'seed')}",
            what=f"{reading.claim[0].upper()}{reading.claim[1:]}: {reading.what}",
            measured=f"{fixed(found.value, DIGITS, sign='+')} ({ends})",
            chance="0",
            outcome=_outcome(reading.sign * found.low, reading.sign * found.high),
        )


def _outcome(one: float, other: float) -> str:
    """Say what an interval on the side of a claim means; ends that are not known leave it open."""
    if min(one, other) > 0:
        return "holds"
    return "denied" if max(one, other) < 0 else "open"


def _several(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
