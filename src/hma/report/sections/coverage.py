"""What coverages that were asked for came to on the test rows."""

from dataclasses import dataclass

from markupsafe import Markup

from hma.report.charts import Plot, Point, Series, panel_chart
from hma.report.html import fill
from hma.report.numbers import percent
from hma.report.run_report import RunReport, Section
from hma.report.svg import Look


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A coverage that was asked for, and what the test rows came to.

    Args:
        asked: The coverage.
        interval: Between what shares of test rows it lies in 95 of 100 draws, if these are drawn
            as the validation rows are.
        covered: Share of rows whose set or interval holds what is true; None without sets.
        size: Mean number of labels in a set, or width of the interval; None without sets.
        unknown: Share of rows that are called unknown; None where none can be.
    """

    asked: float
    interval: tuple[float, float]
    covered: float | None
    size: float | None
    unknown: float | None


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Several coverages of the same rows.

    Args:
        test: Name of the test set.
        validation_rows, test_rows: Rows that thresholds are of, and rows they were tried on.
        size_is: What ``Promise.size`` is, in words.
        levels: The least coverage first.
    """

    test: str
    validation_rows: int
    test_rows: int
    size_is: str
    levels: tuple[Promise, ...]


COVERED, UNKNOWN = (
    Series(name="share covered", look=Look("var(--memory)")),
    Series(name="share called unknown", look=Look("var(--plain)")),
)


def promise_chart(found: Promises) -> Markup:
    """Draw the share covered and the share unknown over the coverage that was asked for.

    A bar is the interval in which the share covered is expected, the dashed line the promise.
    """
    asked = [level.asked for level in found.levels]
    ideal = Series(
        name="promise",
        look=Look("var(--faint)", 2),
        points=(Point(min(asked), min(asked)), Point(1.0, 1.0)),
        joined=True,
    )
    levels = tuple(
        Series(name=series.name, look=series.look, points=tuple(points))
        for series, points in ((COVERED, _points(found, True)), (UNKNOWN, _points(found, False)))
    )
    every = [v / 4 for v in range(5)]
    title = "Coverage kept, and rows called unknown"
    return panel_chart(
        Plot(
            title=title,
            series=(ideal, *levels),
            x_title="coverage that was asked for",
            x_ticks=tuple((v, f"{v:.0%}") for v in asked if v != 0.99),  # too near its neighbour
            y_ticks=tuple((v, f"{v:.0%}") for v in every),
        )
    )


def _points(found: Promises, covered: bool) -> list[Point]:
    points = []
    for level in found.levels:
        share = level.covered if covered else level.unknown
        if share is not None:
            what = "covered" if covered else "unknown"
            words = f"{level.asked:.4g} asked: {percent(share)} {what}"
            low, high = level.interval if covered else (None, None)
            points.append(Point(level.asked, share, (words,), low=low, high=high))
    return points


def draw(report: RunReport, found: Promises) -> Markup:
    """Draw the promises as a chart and a table."""
    return fill("coverage", report=report, promises=found, chart=promise_chart(found))


SECTION = Section(
    "coverage",
    "Coverage",
    "What can be promised",
    lambda facts: facts.more.get("coverage"),
    draw,
)
