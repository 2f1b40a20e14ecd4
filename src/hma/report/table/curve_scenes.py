"""A table's curves, or the scores of its rows, as a picture for print."""

import math
from collections.abc import Iterator

from hma.report.looks import Look
from hma.report.numbers import counted
from hma.report.pictures import Plot, Point, Scene, Series
from hma.report.table import scores
from hma.report.table.table_report import Group, TableReport


def printed_scenes(report: TableReport) -> tuple[Scene, ...]:
    """Return what is printed of a table: its pictures, or its curves where it declares none."""
    return report.scenes or tuple(_curves(report))


def _curves(report: TableReport) -> Iterator[Scene]:
    plots = [
        _plot(report, group)
        for group in report.groups
        if group.name and len(group.tasks) > 1 and _measured(report, group)
    ]
    if plots:
        yield Scene(
            name="",
            title=report.title,
            panels=tuple(plots),
            columns=min(2, len(plots)),
            about="Means over seeds; bands are one sample standard deviation wide on either side.",
        )


def _measured(report: TableReport, group: Group) -> bool:
    return any(_points(report, group, method) for method in report.methods)


def _plot(report: TableReport, group: Group) -> Plot:
    others = [name for name in report.methods if name != report.baseline]
    series = [
        Series(
            name=method,
            look=Look() if method == report.baseline else Look.of(others.index(method)),
            points=_points(report, group, method),
            joined=True,
        )
        for method in report.methods
    ]
    return Plot(
        title=group.name,
        series=tuple(one for one in series if one.points),
        x_title="setting",
        y_title=scores.title(report.metric),
        x_ticks=tuple((float(place), label) for place, label in enumerate(group.labels)),
    )


def _points(report: TableReport, group: Group, method: str) -> tuple[Point, ...]:
    found = []
    for place, task in enumerate(group.tasks):
        entry = report.entries.get((task, method))
        spread = None if entry is None else entry.measured
        if spread is not None and math.isfinite(spread.mean):
            reach = spread.std or 0.0
            text = f"{method}: {scores.spread(report.metric, spread)}"
            words = (text, counted(spread.count, "seed"))
            low, high = spread.mean - reach, spread.mean + reach
            found.append(Point(float(place), spread.mean, words, low=low, high=high))
    return tuple(found)
