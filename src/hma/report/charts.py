"""The drawings of the pages: curves, differences, reliability, maps, numbers, coverages, seeds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.numbers import MINUS, percent, short
from hma.report.run_report import POINT_KINDS, Map, NumberResult, Promises
from hma.report.seeds import SeedsReport, SeedsTrial, Standing
from hma.report.statistics import Calibration, Integers
from hma.report.svg import Axes, Scale, class_colour, marks, picture, spread, tag, ticks
from hma.report.verdict import amount

Written = Callable[[float], str]
WIDTH, HEIGHT = 460.0, 270.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 448.0, 14.0, 232.0
NAMED = 80
"""Classes up to which a confusion matrix that is a picture has names at its sides."""
_CALLED = {"test": "test row", "queue": "row in the queue", "slot": "slot"}
_SHAPES = {
    "test": "M{:.1f} {:.1f}m-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0z",
    "queue": "M{:.1f} {:.1f}m-3 -3h6v6h-6z",
    "slot": "M{:.1f} {:.1f}m0 -6l6 6l-6 6l-6 -6z",
}
SQUARE, SQUARE_LEFT, SQUARE_TOP = 300.0, 56.0, 10.0
POINTS = 600
"""Rows drawn, evenly spread over all."""
BINS = 30
STEP, DOTS_TOP = 46.0, 8.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart.

    Args:
        name: What it shows.
        style: Class of its colour and dashes in the style sheet.
        x, y: Its points; a NaN leaves a gap.
        marked: The x of a point to mark with a ring.
    """

    name: str
    style: str
    x: Sequence[float]
    y: Sequence[float]
    marked: float | None = None


def line_chart(label: str, lines: Sequence[Line], *, shares: bool) -> Markup:
    """Return lines over epochs, the marked point of each with a ring.

    Args:
        label: What the y axis shows.
        lines: The lines.
        shares: Whether values are shares, shown in percent.
    """
    xs = [x for line in lines for x in line.x]
    low, high = spread([y for line in lines for y in line.y])
    if shares:
        low, high = max(low, 0.0), min(high, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    first, last = min(xs, default=0), max(xs, default=1)
    axes = Axes(Scale(first, max(last, first + 1), LEFT, RIGHT), Scale(low, high, BOTTOM, TOP))
    written: Written = _in_percent if shares else short
    epochs = [(v, f"{v:.0f}") for v in ticks(axes.across.low, axes.across.high) if v == int(v)]
    parts = [
        *axes.levels(marks(axes.up, written)),
        *axes.steps(epochs),
        axes.title("epoch"),
        *(_line(line, *axes, written) for line in lines),
    ]
    return picture(WIDTH, HEIGHT, f"{label} over epochs", *parts)


def _in_percent(value: float) -> str:
    return f"{100 * value:.4g}%"


def _line(line: Line, across: Scale, up: Scale, written: Written) -> Markup:
    steps, gap = [], True
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(y):
            place = f"{across(x):.1f} {up(y):.1f}"
            steps.append(f"M{place}h0" if gap else f"L{place}")  # h0: a point alone is a dot
        gap = not math.isfinite(y)
    parts = [tag("path", d=" ".join(steps), class_="line")]
    for x, y in zip(line.x, line.y, strict=True):
        if x == line.marked and math.isfinite(y):
            parts.append(tag("line", x1=across(x), x2=across(x), y1=TOP, y2=BOTTOM, class_="mark"))
            ring = tag("title", f"{line.name}: {written(y)} at the selected epoch {x:.0f}")
            parts.append(tag("circle", ring, cx=across(x), cy=up(y), r=5, class_="ring"))
    return tag("g", *parts, class_=line.style)


def difference_chart(rows: Sequence[tuple[str, Interval, str]], *, unit: str) -> Markup:
    """Return intervals around a line at 0, one under the other.

    Args:
        rows: Name, difference and outcome ('better', 'worse' or another) of each.
        unit: What is written under the axis.
    """
    ends = [v for _, found, _ in rows for v in (found.low, found.high, found.value)]
    low, high = spread([0.0, *ends])
    across = Scale(low, high, 12.0, WIDTH - 12)
    bottom = 8.0 + 44 * len(rows)
    parts = []
    for value in ticks(low, high):
        x = across(value)
        zero = abs(value) < 1e-12
        for top in (26.0 + 44 * i for i in range(len(rows))):  # names stand between the lines
            look = "zero" if zero else "grid"
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=top + 17, class_=look))
        text = "0" if zero else f"{value:+.4g}".replace("-", MINUS)
        parts.append(tag("text", text, x=x, y=bottom + 16, class_="tick middle"))
    for i, (name, found, outcome) in enumerate(rows):
        y = 34.0 + 44 * i
        parts.append(tag("text", name, x=12, y=y - 12, class_="axis"))
        if math.isnan(found.low):
            continue
        span = tag("line", x1=across(found.low), x2=across(found.high), y1=y, y2=y, class_="span")
        dot = tag("circle", cx=across(found.value), cy=y, r=5.5, class_="dot")
        parts.append(tag("g", span, dot, class_=f"outcome-{outcome}"))
    parts.append(tag("text", unit, x=WIDTH / 2, y=bottom + 34, class_="axis middle"))
    return picture(WIDTH, bottom + 40, "Differences with 95% intervals", *parts)


def reliability_chart(found: Calibration, style: str) -> Markup:
    """Return accuracy against confidence in bins, with the number of rows of each below."""
    size, left, top = 200.0, 40.0, 10.0
    across, up = axes = Axes(Scale(0, 1, left, left + size), Scale(0, 1, top + size, top))
    written = marks(across, "{:.0%}".format, about=2)
    parts = [
        *axes.levels(written),
        tag("path", d=f"M{left} {top + size}L{left + size} {top}", class_="ideal"),
        *axes.steps(written, below=56),
        axes.title("confidence", below=74),
    ]
    most = max(int(found.count.max()), 1)
    for (low, high), count, sure, right in zip(
        pairwise(found.edges.tolist()),
        found.count.tolist(),
        found.confidence.tolist(),
        found.accuracy.tolist(),
        strict=True,
    ):
        if count == 0:
            continue
        title = tag("title", f"{count} rows: {sure:.1%} sure on average, {right:.1%} right")
        x, width = across(low) + 1, across(high) - across(low) - 2
        tall = 34 * count / most
        bar = tag("rect", x=x, y=up(right), width=width, height=up(0) - up(right), class_="bar")
        gap = tag("path", d=f"M{x:.1f} {up(sure):.1f}h{width:.1f}", class_="sure")
        base = top + size + 42
        rows = tag("rect", x=x, y=base - tall, width=width, height=tall, class_="rows")
        parts.append(tag("g", title, bar, gap, rows))
    inside = tag("g", *parts, class_=style)
    return picture(left + size + 14, top + size + 80, "Accuracy at each confidence", inside)


def map_chart(found: Map, classes: Sequence[str]) -> Markup:
    """Return the points of a map: colour is the class, shape is the kind."""
    margin, size = 12.0, 440.0
    low, high = found.places.min(axis=0), found.places.max(axis=0)
    reach = float((high - low).max()) or 1.0
    centred = (found.places - (low + high) / 2) / reach * (size - 2 * margin) + size / 2
    groups = []
    for kind, name in enumerate(POINT_KINDS):
        for c in np.unique(found.classes[found.kinds == kind]).tolist():
            places = centred[(found.kinds == kind) & (found.classes == c)].tolist()
            label = classes[c] if 0 <= c < len(classes) else "unknown class"
            title = tag("title", f"{label}: {_CALLED[name]}")
            path = tag("path", d="".join(_SHAPES[name].format(x, y) for x, y in places))
            colour = f"--c:{class_colour(c, len(classes))}"
            groups.append(tag("g", title, path, class_=f"points {name}", style=colour))
    return picture(size, size, found.title, *groups)


def shape_key(kind: str) -> Markup:
    """Return the shape of a kind of point, for the legend."""
    path = tag("path", d=_SHAPES[kind].format(8, 8))
    return picture(16, 16, _CALLED[kind], tag("g", path, class_=f"points {kind} whole"))


def matrix_chart(confusion: Integers, classes: Sequence[str]) -> Markup:
    """Return a confusion matrix of many classes as a picture: the darker the larger the share.

    Up to ``NAMED`` classes are named at its sides, and each cell says what it is on hover.
    """
    if len(classes) <= NAMED:
        return _named_matrix(confusion, classes)
    count = len(confusion)
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    levels = np.ceil(share * 5).astype(int)  # 1 to 5; 0 is empty
    parts = [tag("rect", width=count, height=count, class_="empty")]
    for level in range(1, 6):
        rows, columns = np.nonzero(levels == level)
        cells = zip(columns.tolist(), rows.tolist(), strict=True)
        d = "".join(f"M{x} {y}h1v1h-1z" for x, y in cells)
        parts.append(tag("path", d=d, fill_opacity=level / 5))
    return picture(count, count, "Confusion matrix, true classes downwards", *parts)


def _named_matrix(confusion: Integers, classes: Sequence[str]) -> Markup:
    cell, longest = 13.0, 18
    short = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in classes]
    side = 12 + 5.6 * max(map(len, short))
    whole = side + cell * len(classes)
    parts = [tag("rect", x=side, y=side, width=whole - side, height=whole - side, class_="empty")]
    for place, (name, text) in enumerate(zip(classes, short, strict=True)):
        middle = side + cell * (place + 0.7)
        title = tag("title", name)
        parts.append(tag("text", title, text, x=side - 5, y=middle, class_="tick end side"))
        turned = f"rotate(-90 {middle:.1f} {side - 5:.1f})"
        above = tag("text", title, text, x=middle, y=side - 5, transform=turned, class_="tick side")
        parts.append(above)
    for t, p in np.argwhere(confusion).tolist():
        count, share = confusion[t, p], confusion[t, p] / confusion[t].sum()
        said = f"{classes[t]} called {classes[p]}: {count} rows, {share:.1%} of {classes[t]}"
        x, y = side + cell * p, side + cell * t
        opacity = f"{0.15 + 0.85 * share:.2f}"
        shape = {"x": x, "y": y, "width": cell - 1, "height": cell - 1, "fill_opacity": opacity}
        parts.append(tag("rect", tag("title", said), **shape))
    return picture(whole, whole, "Confusion matrix, true classes downwards", *parts)


def against_chart(result: NumberResult, ends: tuple[float, float], style: str) -> Markup:
    """Return a point for each row: true to the right, predicted upwards."""
    right, base = SQUARE_LEFT + SQUARE, SQUARE_TOP + SQUARE
    across, up = axes = Axes(Scale(*ends, SQUARE_LEFT, right), Scale(*ends, base, SQUARE_TOP))
    kept = np.unique(np.linspace(0, len(result.true) - 1, POINTS).astype(int))
    places = zip(result.true[kept].tolist(), result.said[kept].tolist(), strict=True)
    dots = "".join(
        f"M{across(t):.1f} {up(s):.1f}m-2.4 0a2.4 2.4 0 1 0 4.8 0a2.4 2.4 0 1 0 -4.8 0z"
        for t, s in places
    )
    parts = [
        *axes.levels(marks(up, short)),
        *axes.steps(marks(across, short)),
        tag("path", d=f"M{SQUARE_LEFT} {base}L{right} {SQUARE_TOP}", class_="ideal"),
        tag("path", d=dots, class_="bar"),
        axes.title("true"),
    ]
    inside = tag("g", *parts, class_=style)
    return picture(right + 14, base + 40, "Predicted against true", inside)


def residual_chart(result: NumberResult, apart: float, style: str) -> Markup:
    """Return how many rows were missed by how much, too low to the left of 0."""
    counts, edges = np.histogram(result.said - result.true, bins=BINS, range=(-apart, apart))
    right, base = SQUARE_LEFT + SQUARE, SQUARE_TOP + 90.0
    across, up = axes = Axes(
        Scale(-apart, apart, SQUARE_LEFT, right),
        Scale(0, max(int(counts.max()), 1), base, SQUARE_TOP),
    )
    parts = []
    for (low, high), count in zip(pairwise(edges.tolist()), counts.tolist(), strict=True):
        if count:
            title = tag("title", f"{count} rows: {short(low)} to {short(high)}")
            x, width = across(low) + 0.5, across(high) - across(low) - 1
            bar = {"x": x, "y": up(count), "width": width, "height": up(0) - up(count)}
            parts.append(tag("rect", title, **bar, class_="bar"))
    parts += [
        tag("line", x1=across(0), x2=across(0), y1=SQUARE_TOP, y2=base, class_="ideal"),
        *axes.steps(marks(across, short)),
        axes.title("predicted minus true"),
    ]
    inside = tag("g", *parts, class_=style)
    return picture(right + 14, base + 40, "Residuals", inside)


def promise_chart(found: Promises) -> Markup:
    """Return the share covered and the share unknown over the coverage that was asked for.

    A bar is the interval in which the share covered is expected, the dashed line the promise.
    """
    asked = [level.asked for level in found.levels]
    across, up = axes = Axes(
        Scale(min(asked) - 0.02, max(1.0, max(asked)), LEFT, RIGHT), Scale(0, 1, BOTTOM, TOP)
    )
    ends = f"M{across(min(asked)):.1f} {up(min(asked)):.1f}L{across(1.0):.1f} {up(1.0):.1f}"
    named = [(value, f"{value:.0%}") for value in asked if value != 0.99]  # too near its neighbour
    parts = [
        *axes.levels([(value, f"{value:.0%}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)]),
        *axes.steps(named),
        tag("path", d=ends, class_="ideal"),
        axes.title("coverage that was asked for"),
    ]
    for level in found.levels:
        x, (low, high) = across(level.asked), level.interval
        parts.append(tag("line", x1=x, x2=x, y1=up(low), y2=up(high), class_="grid"))
        for share, look, what in (
            (level.covered, "--o:var(--memory)", "covered"),
            (level.unknown, "--o:var(--plain)", "unknown"),
        ):
            if share is not None:
                title = tag("title", f"{level.asked:.4g} asked: {percent(share)} {what}")
                dot = tag("circle", title, cx=x, cy=up(share), r=4.5, class_="dot")
                parts.append(tag("g", dot, style=look))
    return picture(WIDTH, HEIGHT, "Coverage kept, and rows called unknown", *parts)


def dot_chart(report: SeedsReport, trial: SeedsTrial, metric: str) -> Markup:
    """Return the scores: a dot for each seed, a bar at the mean, the names above."""
    values = [value for one in trial.standings for value in one.scores[metric]]
    low, high = spread(values)
    across = Scale(low, high, 12.0, WIDTH - 12)
    bottom = DOTS_TOP + STEP * len(trial.standings)
    shares = METRICS[metric].share
    parts: list[Markup] = []
    for value in ticks(low, high):
        x = across(value)
        for top in (DOTS_TOP + STEP * i + 18 for i in range(len(trial.standings))):
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=top + 20, class_="grid"))
        text = f"{100 * value:.4g}%" if shares else short(value)
        parts.append(tag("text", text, x=x, y=bottom + 16, class_="tick middle"))
    for place, one in enumerate(trial.standings):
        parts.append(_candidate(report, one, metric, across, DOTS_TOP + STEP * place + 28))
    title = METRICS[metric].title
    parts.append(tag("text", title, x=WIDTH / 2, y=bottom + 34, class_="axis middle"))
    return picture(WIDTH, bottom + 40, f"{title} of every seed", *parts)


def _candidate(report: SeedsReport, one: Standing, metric: str, across: Scale, y: float) -> Markup:
    parts = [tag("text", one.name, x=12, y=y - 13, class_="axis")]
    for seed, value in zip(report.seeds, one.scores[metric], strict=True):
        if math.isfinite(value):
            title = tag("title", f"{one.name}, seed {seed}: {amount(metric, value)}")
            parts.append(tag("circle", title, cx=across(value), cy=y, r=5.5, class_="seed"))
    if math.isfinite(mean := one.mean(metric)):
        title = tag("title", f"{one.name}: mean {amount(metric, mean)}")
        place = {"x": across(mean) - 1.5, "y": y - 10, "width": 3, "height": 20}
        parts.append(tag("rect", title, **place, rx=1.5, class_="mean"))
    return tag("g", *parts, class_=f"series {one.kind}")
