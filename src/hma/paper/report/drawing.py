"""Pictures and scores of a table as SVG, for pages and documents, light and dark."""

import json
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import accumulate, groupby

from markupsafe import Markup

from hma.errors import printable
from hma.paper.report import scores
from hma.paper.report.pictures import curve_plot
from hma.paper.report.scene import Groups, HeatMap, Line, Panel, Plot, Point, Scene, Series
from hma.paper.report.scores import Paired, Spread
from hma.paper.report.table_report import Entry, Group, TableReport
from hma.report.numbers import MINUS, fixed
from hma.report.statistics import CHANCE
from hma.report.svg import (
    COLOURS,
    DASHES,
    SHAPES,
    Axes,
    Look,
    Scale,
    marks,
    picture,
    spread,
    tag,
    ticks,
)

WIDTH, GAP = 920.0, 20.0
LEGEND_STEP, LEGEND_LETTER = 21.0, 7.0
LEVELS = 16
"""Shades; the numbers themselves are shown beside them."""
LETTER, TALLEST = 6.2, 20.0
PALETTE = ":root{--ink:#1a2130;--soft:#5b6575;--faint:#8b94a3;--line:#e2e6ec;--card:#fff}"
DARK = ":root{--ink:#e8ecf3;--soft:#a5afbe;--faint:#7b8696;--line:#2a323f;--card:#171d27}"
FONT = "svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif}"
Drawn = tuple[list[Markup], float]
"""Elements, and the height that they take."""


def scene_drawing(scene: Scene) -> Markup:
    """Return a whole picture: its panels in rows, and the legend below."""
    width = _panel_width(scene)
    parts: list[Markup] = []
    y = 0.0
    for start in range(0, len(scene.panels), scene.columns):
        beside = scene.panels[start : start + scene.columns]
        row = [_drawn(panel, width, asked=False) for panel in beside]
        for place, (inside, _) in enumerate(row):
            moved = f"translate({place * (width + GAP):g} {y:g})"
            parts.append(tag("g", *inside, transform=moved))
        y += max(height for _, height in row) + GAP
    legend, height = _legend(scene, WIDTH)
    parts.append(tag("g", *legend, transform=f"translate(0 {y:g})"))
    return picture(WIDTH, y + height, scene.title, *parts)


def panel_drawings(scene: Scene) -> list[Markup]:
    """Return the panels one by one, for a page that lays them out by its width."""
    width = _panel_width(scene)
    found = []
    for panel in scene.panels:
        parts, height = _drawn(panel, width, asked=True)
        found.append(picture(width, height, f"{scene.title}: {panel.title}", *parts))
    return found


def legend_drawing(series: Series) -> Markup:
    """Return how a series looks, for a legend of words."""
    return picture(30, 16, series.name, _sample(series, 15, 8))


def _panel_width(scene: Scene) -> float:
    columns = min(scene.columns, len(scene.panels))
    return (WIDTH - GAP * (columns - 1)) / columns


def _drawn(panel: Panel, width: float, *, asked: bool) -> Drawn:
    title = tag("text", panel.title, x=0, y=14, class_="name")
    if isinstance(panel, HeatMap):
        inside, height = heat_map(panel, width, asked=asked)
    else:
        inside, height = _plot(panel, width)
    return [title, tag("g", *inside, transform="translate(0 26)")], height + 26


# ------------------------------------------------------------------------------------------ plots


def _plot(panel: Plot, width: float) -> Drawn:
    bare = panel.x_ticks == () == panel.y_ticks
    left, right = (0.0, width) if bare else (46.0, width - 8)
    top, bottom = 4.0, width * (0.8 if bare else 0.62)
    points = [point for series in panel.series for point in series.points]
    low, high = spread([v for p in points for v in (p.y, p.low, p.high) if v is not None])
    axes = Axes(
        Scale(*spread([point.x for point in points]), left, right), Scale(low, high, bottom, top)
    )
    box = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    parts = [
        tag("rect", class_="frame", **box),
        *axes.levels(marks(axes.up, _round) if panel.y_ticks is None else panel.y_ticks),
        *axes.steps(marks(axes.across, _round) if panel.x_ticks is None else panel.x_ticks),
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


def _round(value: float) -> str:
    return f"{value:g}".replace("-", MINUS)


def _series(series: Series, across: Scale, up: Scale, first: int) -> Markup:
    look = series.look
    parts = []
    for whole, stretch in groupby(series.points, key=lambda point: math.isfinite(point.y)):
        if whole and series.joined:
            points = tuple(stretch)
            path = "M" + "L".join(f"{across(p.x):.1f} {up(p.y):.1f}" for p in points)
            kind = "band" if len(points) > 1 else "whisker"
            parts.append(tag("path", d=_band(points, across, up), class_=kind))
            parts.append(tag("path", d=path, class_="curve", stroke_dasharray=DASHES[look.dashes]))
    for place, point in enumerate(series.points, start=first):
        if math.isfinite(point.y):
            parts.append(_point(point, place, look, across, up))
    return tag("g", *parts, class_=_class(look), style=_colour(look))


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


def _class(look: Look) -> str:
    return "row hollow" if look.hollow else "row"


def _colour(look: Look) -> str:
    return f"--s:{'var(--ink)' if look.colour is None else COLOURS[look.colour]}"


# ----------------------------------------------------------------------------------------- legend


def _legend(scene: Scene, width: float) -> Drawn:
    """Return the names of the series, as many beside each other as fit."""
    parts, x, y = [], 0.0, 0.0
    for name, series in scene.legend.items():
        wide = 52.0 + LEGEND_LETTER * len(printable(name))
        if x and x + wide > width:
            x, y = 0.0, y + LEGEND_STEP
        parts += [
            _sample(series, x + 15, y + 8),
            tag("text", name, x=x + 34, y=y + 12.5, class_="axis"),
        ]
        x += wide
    return parts, y + LEGEND_STEP if parts else 0.0


def _sample(series: Series, x: float, y: float) -> Markup:
    look = series.look
    parts = [tag("path", d=SHAPES[look.shape], class_="point", transform=f"translate({x:g} {y:g})")]
    if series.joined:
        dashes = DASHES[look.dashes]
        line = tag("path", d=f"M{x - 15:g} {y:g}h30", class_="curve", stroke_dasharray=dashes)
        parts.insert(0, line)
    return tag("g", *parts, class_=_class(look), style=_colour(look))


def heat_map(panel: HeatMap, width: float, *, asked: bool) -> tuple[list[Markup], float]:
    """Return the elements of a heat map and the height that they take.

    Args:
        panel: What it shows.
        width: Of the drawing.
        asked: Whether it holds the numbers for a page on which fields can be asked for.
    """
    rows, columns = len(panel.rows), len(panel.columns)
    left = 30 + LETTER * max((len(name) for name, _ in panel.row_groups), default=0)
    top = 20.0
    wide = (width - left) / max(columns, 1)
    turned = any(LETTER * len(name) > wide * count for name, count in panel.column_groups)
    tall = min(wide if rows < 30 else max(wide, 4.0), TALLEST + 18 * panel.written)
    right, bottom = left + wide * columns, top + tall * rows
    box = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    parts = [tag("rect", class_="frame", **box)]
    moved = f"translate({left:.2f} {top:.2f}) scale({wide:.4f} {tall:.4f})"
    shades = [tag("path", d=d, fill_opacity=f"{at:.3f}") for at, d in _shades(panel)]
    data = json.dumps(_data(panel), separators=(",", ":")) if asked else None
    parts.append(tag("g", *shades, class_="shades", transform=moved, data_fields=data))
    if panel.written:
        parts += _written(panel, left, top, wide, tall)
    parts += _sides(panel, (left, top, right, bottom), wide, tall, turned=turned)
    below = 8 + (
        LETTER * max((len(n) for n, _ in panel.column_groups), default=0) if turned else 16
    )
    if panel.column_title:
        below += 18
        x = (left + right) / 2
        parts.append(
            tag("text", panel.column_title, x=x, y=bottom + below - 4, class_="axis middle")
        )
    low, high = (fixed(value, panel.digits) for value in panel.reach)
    said = f"{panel.value_title}: {low} (pale) to {high} (strong)"
    parts.append(tag("text", said, x=left, y=13, class_="axis"))
    return parts, bottom + below + 4


def _shades(panel: HeatMap) -> Iterator[tuple[float, str]]:
    """Yield each opacity with the fields that have it; neighbours in a row are one shape."""
    low, high = panel.reach
    shapes: dict[int, list[str]] = {}
    for row, line in enumerate(panel.values):
        levels = [None if v is None else _level(v, low, high) for v in line]
        column = 0
        for level, fields in groupby(levels):
            count = len(list(fields))
            if level is not None:
                shapes.setdefault(level, []).append(f"M{column} {row}h{count}v1h-{count}")
            column += count
    for level, drawn in sorted(shapes.items()):
        yield level / LEVELS, "".join(drawn)


def _level(value: float, low: float, high: float) -> int:
    return round(LEVELS * (value - low) / ((high - low) or 1.0))


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


def _written(panel: HeatMap, left: float, top: float, wide: float, tall: float) -> Iterator[Markup]:
    for row, column, value in panel.numbered:
        x, y = left + wide * (column + 0.5), top + tall * (row + 0.5) + 4
        look = f"tick middle {'on-dark' if panel.is_dark(value) else 'on-light'}"
        yield tag("text", fixed(value, panel.digits), x=x, y=y, class_=look)


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
        yield tag("text", name, x=left - 6, y=y, class_="tick end")
        if parted and end < len(panel.rows):
            at = top + tall * end
            yield tag("line", x1=left, x2=right, y1=at, y2=at, class_="part")
    for name, middle, end in _ends(panel.column_groups):
        x = left + wide * middle
        turn = f"rotate(-90 {x + 4:.1f} {bottom + 6:.1f})" if turned else None
        place = (x + 4, bottom + 6, "tick end") if turned else (x, bottom + 16, "tick middle")
        yield tag("text", name, x=place[0], y=place[1], transform=turn, class_=place[2])
        if parted and end < len(panel.columns):
            at = left + wide * end
            yield tag("line", x1=at, x2=at, y1=top, y2=bottom, class_="part")
    if panel.row_title:
        y = (top + bottom) / 2
        turn = f"rotate(-90 11 {y:.1f})"
        yield tag("text", panel.row_title, x=11, y=y, transform=turn, class_="axis middle")


def _ends(groups: Groups) -> Iterator[tuple[str, float, int]]:
    """Yield each name with the middle and the end of its lines."""
    for (name, count), end in zip(groups, accumulate(count for _, count in groups), strict=True):
        yield name, end - count / 2, end


def figure(report: TableReport, group: Group) -> Markup | None:
    """Return the drawing of a group: a curve if it is one, else dots; None without a number."""
    curve = curve_plot(report, group)
    if curve is not None:
        title = f"{report.table.title}: {group.name}"
        return scene_drawing(Scene(name="", title=title, panels=(curve,)))
    entries = [report.entries.get((task, m)) for task in group.tasks for m in report.methods]
    if any(entry is not None and entry.measured is not None for entry in entries):
        return dot_chart(report, group)
    return None


def standalone(drawing: Markup) -> str:
    """Return a drawing as a file of its own, for light and dark pages."""
    sheet = files("hma.paper.report").joinpath("templates/chart.css").read_text(encoding="utf-8")
    style = f"{PALETTE}@media(prefers-color-scheme:dark){{{DARK}}}{FONT}{sheet}"
    head, inside = str(drawing).split(">", 1)
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    paper = '<rect width="100%" height="100%" fill="var(--card)"/>'
    return f"{head}><style>{style}</style>{paper}{inside}\n"


def _short(text: str, most: int = 17) -> str:
    text = printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _reach(found: Spread) -> tuple[float, float]:
    return found.mean - (found.std or 0.0), found.mean + (found.std or 0.0)


def dot_chart(report: TableReport, group: Group) -> Markup:
    """Return for each task its rows: measured as dots, published as rings, each ± deviation."""
    left, right, step, y = 150.0, WIDTH - 30, 22.0, 8.0
    parts: list[Markup] = []
    for task in group.tasks:
        entries = {
            method: report.entries[task, method]
            for method in report.shown
            if (task, method) in report.entries
        }
        found = [s for entry in entries.values() for s in _shown_spreads(entry)]
        low, high = spread([v for one in found for v in _reach(one)])
        across = Scale(low, high, left, right)
        parts.append(tag("text", task, x=0, y=y + 14, class_="name"))
        top, y = y + 26, y + 26
        end = top + step * len(entries)
        for value in ticks(low, high, about=7) if found else ():
            x = across(value)
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=end, class_="grid"))
            parts.append(tag("text", _round(value), x=x, y=end + 16, class_="tick middle"))
        for method, entry in entries.items():
            parts.append(_dots(report, method, entry, across, y + step / 2, left))
            y += step
        y = end + 34
    label = f"{report.table.title}: {scores.title(report.table.metric)}"
    parts.append(tag("text", _dots_key(report), x=left, y=y + 4, class_="axis"))
    return picture(WIDTH, y + 14, label, *parts)


def _dots_key(report: TableReport) -> str:
    text = f"{scores.title(report.table.metric)}; dots: measured, mean ± deviation over seeds"
    return f"{text}; rings: published" if report.has_published else text


def _shown_spreads(entry: Entry) -> list[Spread]:
    found = [] if entry.published is None else [Spread(*entry.published, count=0)]
    if entry.measured is not None and math.isfinite(entry.measured.mean):
        found.append(entry.measured)
    return found


def _dots(
    report: TableReport, method: str, entry: Entry, across: Scale, y: float, left: float
) -> Markup:
    colour = "var(--ink)" if method == report.table.baseline else COLOURS[0]
    parts = [tag("text", _short(method, 20), x=left - 12, y=y + 4, class_="axis end")]
    for found in _shown_spreads(entry):
        ours = found is entry.measured
        low, high = (across(value) for value in _reach(found))
        place = y - 3 if ours else y + 4
        kind = "measured" if ours else "published"
        text = f"{method}, {kind}: {scores.spread(report.table.metric, found)}"
        parts.append(tag("line", x1=low, x2=high, y1=place, y2=place, class_=f"span {kind}"))
        parts.append(
            tag("circle", tag("title", text), cx=across(found.mean), cy=place, r=4.2, class_=kind)
        )
    if entry.measured is None:
        parts.append(tag("text", "missing", x=left + 4, y=y + 4, class_="tick"))
    return tag("g", *parts, class_="row", style=f"--s:{colour}")


def interval_bar(pair: Paired, reach: float) -> Markup | None:
    """Return a difference and its interval on a line from ``-reach`` to ``reach``.

    What lies beyond is cut off; an arrow shows that it goes on. It has a colour only if the
    interval leaves 0 out and the test agrees.

    Args:
        pair: A row against the baseline; a single pair has no interval.
        reach: What the ends of the line stand for.
    """
    low, high, value = pair.low, pair.high, pair.difference
    if low is None or high is None:
        return None
    across = Scale(-reach, reach, 10.0, 130.0)
    start, end, middle = (across(min(max(v, -reach), reach)) for v in (low, high, value))
    parts = [
        tag("line", x1=70, x2=70, y1=1, y2=19, class_="zero"),
        tag("line", x1=start, x2=end, y1=10, y2=10, class_="span"),
    ]
    if abs(value) <= reach:
        parts.append(tag("circle", cx=middle, cy=10, r=4.0, class_="dot"))
    if high > reach:
        parts.append(tag("path", d="M130 5l8 5l-8 5z", class_="dot"))
    if low < -reach:
        parts.append(tag("path", d="M10 5l-8 5l8 5z", class_="dot"))
    outcome = "same" if pair.p >= CHANCE or low <= 0 <= high else "better" if low > 0 else "worse"
    inside = tag("g", *parts, class_=f"outcome-{outcome}")
    return picture(140, 20, f"{value:+.2f}, {low:+.2f} to {high:+.2f}", inside)
