"""Pictures and scores of a table as SVG, for pages and documents, light and dark."""

import math
from importlib.resources import files

from markupsafe import Markup

from hma.errors import printable
from hma.paper.report import scores
from hma.paper.report.pictures import curve_plot
from hma.paper.report.scene import Scene
from hma.paper.report.scores import Paired, Spread
from hma.paper.report.table_report import Entry, Group, TableReport
from hma.report.charts import Drawn, Mark, Panel, Strip, legend_sample, panel_parts, strip_parts
from hma.report.statistics import CHANCE
from hma.report.svg import Scale, picture, tag

WIDTH, GAP = 920.0, 20.0
LEGEND_STEP, LEGEND_LETTER = 21.0, 7.0
PALETTE = ":root{--ink:#1a2130;--soft:#5b6575;--faint:#8b94a3;--line:#e2e6ec;--card:#fff}"
DARK = ":root{--ink:#e8ecf3;--soft:#a5afbe;--faint:#7b8696;--line:#2a323f;--card:#171d27}"
FONT = "svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif}"


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


def _panel_width(scene: Scene) -> float:
    columns = min(scene.columns, len(scene.panels))
    return (WIDTH - GAP * (columns - 1)) / columns


def _drawn(panel: Panel, width: float, *, asked: bool) -> Drawn:
    title = tag("text", panel.title, x=0, y=14, class_="name")
    inside, height = panel_parts(panel, width, asked=asked)
    return [title, tag("g", *inside, transform="translate(0 26)")], height + 26


def _legend(scene: Scene, width: float) -> Drawn:
    """Return the names of the series, as many beside each other as fit."""
    parts, x, y = [], 0.0, 0.0
    for name, series in scene.legend.items():
        wide = 52.0 + LEGEND_LETTER * len(printable(name))
        if x and x + wide > width:
            x, y = 0.0, y + LEGEND_STEP
        parts += [
            legend_sample(series, x + 15, y + 8),
            tag("text", name, x=x + 34, y=y + 12.5, class_="axis"),
        ]
        x += wide
    return parts, y + LEGEND_STEP if parts else 0.0


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
    sheet = files("hma.report").joinpath("templates/chart.css").read_text(encoding="utf-8")
    style = f"{PALETTE}@media(prefers-color-scheme:dark){{{DARK}}}{FONT}{sheet}"
    head, inside = str(drawing).split(">", 1)
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    paper = '<rect width="100%" height="100%" fill="var(--card)"/>'
    return f"{head}><style>{style}</style>{paper}{inside}\n"


def dot_chart(report: TableReport, group: Group) -> Markup:
    """Return for each task its rows: measured as dots, published as rings, each ± deviation."""
    parts, y = [], 8.0
    for task in group.tasks:
        strips = [
            _strip(report, method, report.entries[task, method])
            for method in report.shown
            if (task, method) in report.entries
        ]
        parts.append(tag("text", task, x=0, y=y + 14, class_="name"))
        if strips:
            inside, height = strip_parts(strips, WIDTH)
            parts.append(tag("g", *inside, transform=f"translate(0 {y + 22:g})"))
            y += height + 34
    title = scores.title(report.table.metric)
    text = f"{title}; dots: measured, mean ± deviation over seeds"
    text = f"{text}; rings: published" if report.has_published else text
    parts.append(tag("text", text, x=0, y=y + 4, class_="axis"))
    return picture(WIDTH, y + 14, f"{report.table.title}: {title}", *parts)


def _strip(report: TableReport, method: str, entry: Entry) -> Strip:
    held = {"ring": entry.published and Spread(*entry.published, count=0), "dot": entry.measured}
    marks = []
    for kind, found in held.items():
        if found is not None and math.isfinite(found.mean):
            what = "measured" if kind == "dot" else "published"
            words = f"{method}, {what}: {scores.spread(report.table.metric, found)}"
            reach = found.std or 0.0
            marks.append(Mark(found.mean, kind, words, found.mean - reach, found.mean + reach))
    style = "row baseline" if method == report.table.baseline else "row"
    return Strip(method, style, marks, "missing" if entry.measured is None else "")


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
