"""Pictures as SVG, for pages and documents, light and dark."""

from collections.abc import Iterator

from markupsafe import Markup

from hma.errors import printable
from hma.report.looks import COLOURS, DASHES, SHAPES, Look
from hma.report.pictures.heat_map import heat_map
from hma.report.pictures.scene import HeatMap, Panel, Plot, Point, Scene, Series, Ticks
from hma.report.svg import Scale, picture, spread, tag, ticks

WIDTH, GAP = 920.0, 20.0
LEGEND_STEP, LEGEND_LETTER = 21.0, 7.0
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
    across = Scale(*spread([point.x for point in points]), left, right)
    up = Scale(low, high, bottom, top)
    box = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    parts = [tag("rect", class_="frame", **box)]
    for value, text in _round(panel.y_ticks, up):
        y = up(value)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", text, x=left - 6, y=y + 4, class_="tick end"))
    for value, text in _round(panel.x_ticks, across):
        parts.append(tag("text", text, x=across(value), y=bottom + 17, class_="tick middle"))
    place = 0
    for series in panel.series:
        parts.append(_series(series, across, up, place))
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


def _round(given: Ticks | None, scale: Scale) -> Iterator[tuple[float, str]]:
    if given is not None:
        yield from given
        return
    for value in ticks(scale.low, scale.high, about=5):
        yield value, f"{value:g}".replace("-", "\u2212")


def _series(series: Series, across: Scale, up: Scale, first: int) -> Markup:
    look, points = series.look, series.points
    parts = []
    if series.joined and points:
        path = "M" + "L".join(f"{across(p.x):.1f} {up(p.y):.1f}" for p in points)
        if len(points) > 1:
            parts.append(tag("path", d=_band(points, across, up), class_="band"))
        parts.append(tag("path", d=path, class_="curve", stroke_dasharray=DASHES[look.dashes]))
    for place, point in enumerate(points, start=first):
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
        wide = 46.0 + LEGEND_LETTER * len(printable(name))
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
