"""Charts of all pages: plots, heat maps and strips, from plain numbers to SVG."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple

from markupsafe import Markup

from hma.errors import printable
from hma.report.numbers import fixed, short
from hma.report.svg import DASHES, SHAPES, Axes, Look, Scale, marks, picture, spread, tag, ticks

WIDTH = 460.0
"""Of a chart that stands beside another one."""
LEVELS = 16
"""Shades; the numbers themselves are shown beside them."""
LETTER, TALLEST, LONGEST = 6.2, 20.0, 20
"""Width of a letter, height of a field of a heat map, letters of a name at a side."""
LANE = 24.0
Ticks = tuple[tuple[float, str], ...]
Groups = tuple[tuple[str, int], ...]
"""Names of neighbouring lines of a heat map, each with how many lines it names."""
Drawn = tuple[list[Markup], float]
"""Elements, and the height that they take."""


class Example(NamedTuple):
    """Which row of the data a point is; pages show it where the data is there.

    Args:
        task, seed: Of the cell whose data it is.
        split: ``train``, ``validation`` or the name of a test split.
        place: Its place there.
    """

    task: str
    seed: int
    split: str
    place: int

    @property
    def key(self) -> str:
        """Its name on a page."""
        return "/".join(map(str, self))


class Point(NamedTuple):
    """A point of a series.

    Args:
        x, y: Where it is; a ``y`` of NaN is a hole in the line.
        words: What it is, a line each; the first names it.
        near: Places of other points that are marked with it, counted through the whole plot.
        example: The row it stands for.
        low, high: Ends of a band or, where points are not joined, of a bar.
    """

    x: float
    y: float
    words: tuple[str, ...] = ()
    near: tuple[int, ...] = ()
    example: Example | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one kind.

    Args:
        name: In the legend.
        look: How they look.
        points: In order.
        joined: Whether a line goes through them.
        ring: The ``x`` of the one point of a line that is marked, all others being bare.
    """

    name: str
    look: Look
    points: tuple[Point, ...] = ()
    joined: bool = False
    ring: float | None = None


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Series on two axes.

    Args:
        title: Above it.
        series: What it shows; those drawn later lie above.
        x_title, y_title: Of the axes.
        x_ticks, y_ticks: Marks of the axes; None for round numbers, empty for none.
        square: Whether both axes have the same scale.
    """

    title: str
    series: tuple[Series, ...]
    x_title: str = ""
    y_title: str = ""
    x_ticks: Ticks | None = None
    y_ticks: Ticks | None = None
    square: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether it has no axes."""
        return self.x_ticks == () == self.y_ticks


class Line(NamedTuple):
    """A row or a column of a heat map: what it is, and which row of the data."""

    words: str
    example: Example | None = None


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Numbers as shades, the larger the darker.

    Args:
        title: Above it.
        values: Row by row; None where there is none.
        rows, columns: What they are.
        row_groups, column_groups: Neighbours that have a name together; lines part them.
        row_title, column_title: Of the sides.
        value_title: What the numbers are.
        digits: Decimals that a number is shown with.
        written: Whether each field shows its number.
        words: What each field says when pointed at, on pages without a script.
    """

    title: str
    values: tuple[tuple[float | None, ...], ...]
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    row_groups: Groups
    column_groups: Groups
    row_title: str = ""
    column_title: str = ""
    value_title: str = ""
    digits: int = 3
    written: bool = False
    words: Callable[[int, int], str] | None = None

    @property
    def reach(self) -> tuple[float, float]:
        """The least and the largest number; 0 and 1 of none."""
        there = [value for _, _, value in self.numbered]
        return (min(there), max(there)) if there else (0.0, 1.0)

    def is_dark(self, value: float) -> bool:
        """Tell whether the shade of a number is one to write on in white."""
        low, high = self.reach
        return value > low + 0.6 * (high - low)

    @property
    def numbered(self) -> Iterator[tuple[int, int, float]]:
        """Row, column and number of each field that has one."""
        for row, line in enumerate(self.values):
            for column, value in enumerate(line):
                if value is not None:
                    yield row, column, value


Panel = Plot | HeatMap


def panel_chart(panel: Panel, width: float = WIDTH, *, label: str = "") -> Markup:
    """Return a panel as a drawing of its own, without its title."""
    inside, height = panel_parts(panel, width)
    return picture(width, height, label or panel.title, *inside)


def panel_parts(panel: Panel, width: float, *, asked: bool = False) -> Drawn:
    """Return the elements of a panel.

    Args:
        panel: What it shows.
        width: Of the drawing.
        asked: Whether it holds the numbers for a page whose script shows them.
    """
    if isinstance(panel, HeatMap):
        return _heat_map(panel, width, asked=asked)
    return _plot(panel, width)


# ------------------------------------------------------------------------------------------ plots


def _plot(panel: Plot, width: float) -> Drawn:
    bare = panel.is_bare
    left, right = (0.0, width) if bare else (46.0, width - 8)
    tall = right - left if panel.square else width * (0.8 if bare else 0.62)
    top, bottom = 4.0, 4.0 + tall
    points = [point for series in panel.series for point in series.points]
    across = spread([point.x for point in points])
    up = spread([v for p in points for v in (p.y, p.low, p.high) if v is not None])
    if panel.square:
        across = up = min(across[0], up[0]), max(across[1], up[1])
    axes = Axes(Scale(*across, left, right), Scale(*up, bottom, top))
    box = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    parts = [
        tag("rect", class_="frame", **box),
        *axes.levels(_ticks(axes.up, panel.y_ticks)),
        *axes.steps(_ticks(axes.across, panel.x_ticks)),
    ]
    place = 0
    for series in panel.series:
        parts.append(_series(series, *axes, place))
        place += len(series.points)
    height = bottom + (4 if bare else 24)
    if panel.x_title:
        height += 16
        parts.append(
            tag("text", panel.x_title, x=(left + right) / 2, y=height, class_="axis middle")
        )
    if panel.y_title:
        parts.append(tag("text", panel.y_title, x=right, y=-12, class_="axis end"))
    return parts, height + 6


def _ticks(scale: Scale, given: Ticks | None) -> list[tuple[float, str]]:
    """Return the marks of an axis: round numbers, or those given that lie on it."""
    if given is None:
        return marks(scale, short)
    return [(value, text) for value, text in given if scale.low <= value <= scale.high]


def _series(series: Series, across: Scale, up: Scale, first: int) -> Markup:
    parts = []
    for whole, stretch in groupby(series.points, key=lambda point: math.isfinite(point.y)):
        if whole and series.joined:
            points = tuple(stretch)
            path = "M" + "L".join(f"{across(p.x):.1f} {up(p.y):.1f}" for p in points) + "h0"
            kind = "band" if len(points) > 1 else "whisker"
            dashes = DASHES[series.look.dashes]
            parts.append(tag("path", d=_band(points, across, up), class_=kind))
            parts.append(tag("path", d=path, class_="curve", stroke_dasharray=dashes))
    there = [(p, n) for n, p in enumerate(series.points, start=first) if math.isfinite(p.y)]
    if series.ring is not None:
        there = [(point, place) for point, place in there if point.x == series.ring]
    for point, _ in there if not series.joined else ():
        if point.low is not None and point.high is not None:
            x = across(point.x)
            ends = {"x1": x, "x2": x, "y1": up(point.low), "y2": up(point.high)}
            parts.append(tag("line", **ends, class_="whisker"))
    if any(point.words for point, _ in there):
        parts += [_point(p, n, series.look, across, up) for p, n in there]
    elif there and not series.joined:
        shape = SHAPES[series.look.shape]
        d = "".join(f"M{across(p.x):.1f} {up(p.y):.1f}{shape}" for p, _ in there)
        parts.append(tag("path", tag("title", series.name), d=d, class_="point"))
    return _styled(series.look, *parts)


def _band(points: tuple[Point, ...], across: Scale, up: Scale) -> str:
    high = [(p.x, p.y if p.high is None else p.high) for p in points]
    low = [(p.x, p.y if p.low is None else p.low) for p in reversed(points)]
    return "M" + "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in [*high, *low]) + "Z"


def _point(point: Point, place: int, look: Look, across: Scale, up: Scale) -> Markup:
    return tag(
        "path",
        tag("title", "\n".join(point.words)),
        d=SHAPES[look.shape],
        class_="point",
        transform=f"translate({across(point.x):.1f} {up(point.y):.1f})",
        data_place=place,
        data_near=" ".join(map(str, point.near)) or None,
        data_example=None if point.example is None else point.example.key,
    )


def _styled(look: Look, *parts: Markup) -> Markup:
    kind = "row hollow" if look.hollow else "row"
    return tag("g", *parts, class_=kind, style=f"--s:{look.colour or 'var(--ink)'}")


def legend_chart(series: Series) -> Markup:
    """Return how a series looks, for a legend of words."""
    return picture(30, 16, series.name, legend_sample(series, 15, 8))


def legend_sample(series: Series, x: float, y: float) -> Markup:
    """Return how a series looks, around a place of a drawing."""
    look, parts = series.look, []
    if series.joined:
        dashes = DASHES[look.dashes]
        parts.append(
            tag("path", d=f"M{x - 15:g} {y:g}h30", class_="curve", stroke_dasharray=dashes)
        )
    if series.ring is None:
        moved = f"translate({x:g} {y:g})"
        parts.append(tag("path", d=SHAPES[look.shape], class_="point", transform=moved))
    return _styled(look, *parts)


# -------------------------------------------------------------------------------------- heat maps


def _heat_map(panel: HeatMap, width: float, *, asked: bool) -> Drawn:
    rows, columns = len(panel.rows), len(panel.columns)
    left = 30 + LETTER * max((len(_cut(name)) for name, _ in panel.row_groups), default=0)
    top = 20.0
    wide = (width - left) / max(columns, 1)
    turned = any(LETTER * len(name) > wide * count for name, count in panel.column_groups)
    tall = min(wide if rows < 30 else max(wide, 4.0), TALLEST + 18 * panel.written)
    right, bottom = left + wide * columns, top + tall * rows
    box = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    parts = [tag("rect", class_="frame", **box)]
    moved = f"translate({left:.2f} {top:.2f}) scale({wide:.4f} {tall:.4f})"
    data = json.dumps(_data(panel), separators=(",", ":")) if asked else None
    parts.append(tag("g", *_shades(panel), class_="shades", transform=moved, data_fields=data))
    for row, column, value in panel.numbered if panel.written else ():
        x, y = left + wide * (column + 0.5), top + tall * (row + 0.5) + 4
        look = f"tick middle {'on-dark' if panel.is_dark(value) else 'on-light'}"
        parts.append(tag("text", fixed(value, panel.digits), x=x, y=y, class_=look))
    parts += _sides(panel, (left, top, right, bottom), wide, tall, turned=turned)
    longest = max((len(_cut(name)) for name, _ in panel.column_groups), default=0)
    below = 8 + (LETTER * longest if turned else 16)
    if panel.column_title:
        below += 18
        place = {"x": (left + right) / 2, "y": bottom + below - 4}
        parts.append(tag("text", panel.column_title, **place, class_="axis middle"))
    low, high = (fixed(value, panel.digits) for value in panel.reach)
    said = f"{panel.value_title}: {low} (pale) to {high} (strong)"
    parts.append(tag("text", said, x=left, y=13, class_="axis"))
    return parts, bottom + below + 4


def _shades(panel: HeatMap) -> Iterator[Markup]:
    """Yield the fields: each by itself where it has words, else by shade, neighbours as one."""
    low, high = panel.reach
    shapes: dict[int, list[str]] = {}
    for row, line in enumerate(panel.values):
        levels = [None if v is None else round(LEVELS * _part(v, low, high)) for v in line]
        column = 0
        for level, fields in groupby(levels):
            count = len(list(fields))
            if level is not None:
                shapes.setdefault(level, []).append(f"M{column} {row}h{count}v1h-{count}")
            column += count
    if panel.words is None:
        for level, drawn in sorted(shapes.items()):
            yield tag("path", d="".join(drawn), fill_opacity=f"{level / LEVELS:.3f}")
        return
    for row, column, value in panel.numbered:
        opacity = f"{0.15 + 0.85 * _part(value, low, high):.2f}"
        title = tag("title", panel.words(row, column))
        yield tag("path", title, d=f"M{column} {row}h1v1h-1", fill_opacity=opacity)


def _part(value: float, low: float, high: float) -> float:
    return (value - low) / ((high - low) or 1.0)


def _data(panel: HeatMap) -> dict[str, object]:
    """Return what a page's script shows of a field."""
    return {
        "rows": _lines(panel.rows),
        "columns": _lines(panel.columns),
        "title": printable(panel.value_title),
        "digits": panel.digits,
        "values": [
            [None if value is None else round(value, panel.digits) for value in line]
            for line in panel.values
        ],
    }


def _lines(lines: Sequence[Line]) -> list[list[str | None]]:
    return [
        [printable(line.words), None if line.example is None else line.example.key]
        for line in lines
    ]


def _sides(
    panel: HeatMap,
    box: tuple[float, float, float, float],
    wide: float,
    tall: float,
    *,
    turned: bool,
) -> Iterator[Markup]:
    left, top, right, bottom = box
    parted = any(count > 1 for _, count in (*panel.row_groups, *panel.column_groups))
    for name, middle, end in _ends(panel.row_groups):
        y = top + tall * middle + 4
        yield tag("text", *_name(name), x=left - 6, y=y, class_="tick end")
        if parted and end < len(panel.rows):
            at = top + tall * end
            yield tag("line", x1=left, x2=right, y1=at, y2=at, class_="part")
    for name, middle, end in _ends(panel.column_groups):
        x = left + wide * middle
        turn = f"rotate(-90 {x + 4:.1f} {bottom + 6:.1f})" if turned else None
        place = (x + 4, bottom + 6, "tick end") if turned else (x, bottom + 16, "tick middle")
        yield tag("text", *_name(name), x=place[0], y=place[1], transform=turn, class_=place[2])
        if parted and end < len(panel.columns):
            at = left + wide * end
            yield tag("line", x1=at, x2=at, y1=top, y2=bottom, class_="part")
    if panel.row_title:
        y = (top + bottom) / 2
        turn = f"rotate(-90 11 {y:.1f})"
        yield tag("text", panel.row_title, x=11, y=y, transform=turn, class_="axis middle")


def _name(name: str) -> tuple[str, ...]:
    """Return a name as it is written, and whole for those who point at it where it is cut."""
    return (_cut(name),) if _cut(name) == printable(name) else (tag("title", name), _cut(name))


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _ends(groups: Groups) -> Iterator[tuple[str, float, int]]:
    """Yield each name with the middle and the end of its lines."""
    for (name, count), end in zip(groups, accumulate(count for _, count in groups), strict=True):
        yield name, end - count / 2, end


# ----------------------------------------------------------------------------------------- strips


class Mark(NamedTuple):
    """A number on a strip.

    Args:
        value: Where it is; what is not finite is left out.
        kind: How it looks: 'dot', 'ring' or 'mean'.
        words: What it is.
        low, high: Ends of its interval.
    """

    value: float
    kind: str = "dot"
    words: str = ""
    low: float = math.nan
    high: float = math.nan


class Strip(NamedTuple):
    """Numbers of one name on a line.

    Args:
        name: To the left.
        style: Class of its colour in the style sheet.
        marks: The numbers.
        note: Where numbers are missing, what is said instead.
    """

    name: str
    style: str
    marks: Sequence[Mark]
    note: str = ""


def strip_chart(
    label: str,
    strips: Sequence[Strip],
    *,
    unit: str,
    write: Callable[[float], str] = short,
    zero: bool = False,
) -> Markup:
    """Return strips under each other on one axis.

    Args:
        label: What the drawing is.
        strips: The lines.
        unit: What is written under the axis.
        write: How numbers are written.
        zero: Whether 0 is on the axis, and marked.
    """
    parts, height = strip_parts(strips, WIDTH, write=write, zero=zero)
    parts.append(tag("text", unit, x=WIDTH / 2, y=height + 14, class_="axis middle"))
    return picture(WIDTH, height + 20, label, *parts)


def strip_parts(
    strips: Sequence[Strip],
    width: float,
    *,
    write: Callable[[float], str] = short,
    zero: bool = False,
) -> Drawn:
    """Return the elements of strips on one axis; see :func:`strip_chart`."""
    left = 18 + 7.2 * max(len(_cut(one.name)) for one in strips)
    found = [v for one in strips for m in one.marks for v in (m.value, m.low, m.high)]
    across = Scale(*spread([0.0, *found] if zero else found), left, width - 14)
    end = LANE * len(strips) + 4
    parts = []
    for value in ticks(across.low, across.high) if any(map(math.isfinite, found)) else ():
        x, is_zero = across(value), zero and abs(value) < 1e-12
        look = "zero" if is_zero else "grid"
        parts.append(tag("line", x1=x, x2=x, y1=2, y2=end, class_=look))
        parts.append(tag("text", write(value), x=x, y=end + 16, class_="tick middle"))
    for place, one in enumerate(strips):
        y = LANE * (place + 0.5) + 2
        inside = [tag("text", *_name(one.name), x=left - 12, y=y + 4, class_="axis end")]
        for m in one.marks:
            inside += _mark(m, across, y)
        if one.note:
            inside.append(tag("text", one.note, x=left + 4, y=y + 4, class_="tick"))
        parts.append(tag("g", *inside, class_=one.style))
    return parts, end + 22


def _mark(one: Mark, across: Scale, y: float) -> Iterator[Markup]:
    y += 5 if one.kind == "ring" else 0  # below a dot, not behind it
    if math.isfinite(one.low) and math.isfinite(one.high):
        ends = {"x1": across(one.low), "x2": across(one.high), "y1": y, "y2": y}
        yield tag("line", **ends, class_=f"span {one.kind}")
    if not math.isfinite(one.value):
        return
    title = [tag("title", one.words)] if one.words else []
    if one.kind == "mean":
        place = {"x": across(one.value) - 1.5, "y": y - 9, "width": 3, "height": 18, "rx": 1.5}
        yield tag("rect", *title, **place, class_=one.kind)
    else:
        yield tag("circle", *title, cx=across(one.value), cy=y, r=4.8, class_=one.kind)
