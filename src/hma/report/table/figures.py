"""The drawings of a table: curves over settings, or scores of rows beside the published ones."""

import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby

from markupsafe import Markup

from hma.errors import printable
from hma.report.looks import COLOURS, DASHES, SHAPES
from hma.report.numbers import MINUS, counted
from hma.report.statistics import CHANCE
from hma.report.svg import Scale, picture, spread, tag, ticks
from hma.report.table import scores
from hma.report.table.table_report import Entry, Group, Paired, Spread, TableReport

WIDTH = 920.0
LEFT, RIGHT = 48.0, 730.0
PALETTE = ":root{--ink:#1a2130;--soft:#5b6575;--faint:#8b94a3;--line:#e2e6ec;--card:#fff}"
DARK = ":root{--ink:#e8ecf3;--soft:#a5afbe;--faint:#7b8696;--line:#2a323f;--card:#171d27}"
FONT = "svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif}"


def figure(report: TableReport, group: Group) -> Markup | None:
    """Return the drawing of a group: curves if it is one, else dots; None without a number."""
    if not any(_means(report, group, method) for method in report.methods):
        return None
    if group.name and len(group.tasks) > 1:
        return curve_chart(report, group)
    return dot_chart(report, group)


def standalone(drawing: Markup, more: str = "") -> str:
    """Return a drawing as a file of its own, for light and dark pages; ``more`` is style."""
    style = f"{PALETTE}@media(prefers-color-scheme:dark){{{DARK}}}{FONT}{chart_style()}{more}"
    head, inside = str(drawing).split(">", 1)
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    paper = '<rect width="100%" height="100%" fill="var(--card)"/>'
    return f"{head}><style>{style}</style>{paper}{inside}\n"


def chart_style() -> str:
    """Return the style sheet of the drawings."""
    return files("hma.report.table").joinpath("templates/chart.css").read_text(encoding="utf-8")


def _means(report: TableReport, group: Group, method: str) -> list[Entry]:
    entries = (report.entries.get((task, method)) for task in group.tasks)
    return [entry for entry in entries if entry is not None and entry.measured is not None]


def row_look(report: TableReport, method: str) -> tuple[str, str | None, str]:
    """Return colour, dashes and shape of a row; the baseline has the colour of the text."""
    others = [name for name in report.methods if name != report.baseline]
    if method == report.baseline:
        return "var(--ink)", None, SHAPES[0]
    place = others.index(method)
    return (
        COLOURS[place % len(COLOURS)],
        DASHES[place // len(COLOURS) % len(DASHES)],
        SHAPES[place % len(SHAPES)],
    )


def curve_chart(report: TableReport, group: Group) -> Markup:
    """Return mean scores over the settings of a curve, with a band of one deviation."""
    lines = {method: _line_of(report, group, method) for method in report.shown}
    present = [found for line in lines.values() for found in line if found is not None]
    low, high = spread([v for found in present for v in _reach(found)])
    top, bottom = 34.0, max(410.0, 60.0 + 21 * len(lines))
    across = Scale(-0.25, len(group.tasks) - 0.75, LEFT, RIGHT)
    up = Scale(low, high, bottom, top)
    parts = [
        *_levels(up, LEFT, RIGHT),
        *(
            tag("text", label, x=across(place), y=bottom + 20, class_="tick middle")
            for place, label in enumerate(group.labels)
        ),
        tag("text", scores.title(report.metric), x=8, y=14, class_="axis"),
        tag("text", "setting", x=(LEFT + RIGHT) / 2, y=bottom + 42, class_="axis middle"),
    ]
    parts += [_band(report, method, line, across, up) for method, line in lines.items()]
    parts += [_curve(report, method, line, across, up) for method, line in lines.items()]
    parts += _legend(report, lines)
    return picture(WIDTH, bottom + 50, f"{report.title}: {group.name}", *parts)


def _line_of(report: TableReport, group: Group, method: str) -> list[Spread | None]:
    entries = [report.entries.get((task, method)) for task in group.tasks]
    spreads = [entry.measured if entry else None for entry in entries]
    return [found if found and math.isfinite(found.mean) else None for found in spreads]


def _reach(found: Spread) -> tuple[float, float]:
    return found.mean - (found.std or 0.0), found.mean + (found.std or 0.0)


def _levels(up: Scale, left: float, right: float) -> Iterator[Markup]:
    for value in ticks(up.low, up.high, about=6):
        y = up(value)
        yield tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid")
        text = f"{value:g}".replace("-", MINUS)
        yield tag("text", text, x=left - 8, y=y + 4, class_="tick end")


def _stretches(line: Sequence[Spread | None]) -> Iterator[list[tuple[int, Spread]]]:
    """Yield the parts of a line without a hole."""
    for there, part in groupby(enumerate(line), key=lambda pair: pair[1] is not None):
        if there:
            yield [(place, found) for place, found in part if found is not None]


def _band(
    report: TableReport, method: str, line: Sequence[Spread | None], across: Scale, up: Scale
) -> Markup:
    colour, _, _ = row_look(report, method)
    parts = []
    for part in _stretches(line):
        above = [f"{across(x):.1f} {up(_reach(found)[1]):.1f}" for x, found in part]
        below = [f"{across(x):.1f} {up(_reach(found)[0]):.1f}" for x, found in reversed(part)]
        closed = "M" + "L".join([*above, *below]) + "Z"
        parts.append(tag("path", d=closed, class_="band" if len(part) > 1 else "whisker"))
    return tag("g", *parts, class_="row", style=f"--s:{colour}")


def _curve(
    report: TableReport, method: str, line: Sequence[Spread | None], across: Scale, up: Scale
) -> Markup:
    colour, dashes, shape = row_look(report, method)
    parts = []
    for part in _stretches(line):
        path = "M" + "L".join(f"{across(x):.1f} {up(found.mean):.1f}" for x, found in part)
        parts.append(tag("path", d=path, class_="curve", stroke_dasharray=dashes))
        for x, found in part:
            text = (
                f"{method}: {scores.spread(report.metric, found)}, {counted(found.count, 'seed')}"
            )
            place = f"translate({across(x):.1f} {up(found.mean):.1f})"
            title = tag("title", text)
            parts.append(tag("path", title, d=shape, class_="point", transform=place))
    return tag("g", *parts, class_="row", style=f"--s:{colour}")


def _legend(report: TableReport, lines: dict[str, list[Spread | None]]) -> Iterator[Markup]:
    """Yield the names of the rows, those with the largest last mean at the top."""
    last = {
        method: next((found.mean for found in reversed(line) if found), -math.inf)
        for method, line in lines.items()
    }
    for place, method in enumerate(sorted(lines, key=lambda name: -last[name])):
        colour, dashes, shape = row_look(report, method)
        y = 44.0 + 21 * place
        inside = [
            tag("path", d=f"M{RIGHT + 22} {y}h34", class_="curve", stroke_dasharray=dashes),
            tag("path", d=shape, class_="point", transform=f"translate({RIGHT + 39} {y})"),
            tag("text", _short(method), x=RIGHT + 64, y=y + 4.5, class_="name"),
        ]
        if last[method] == -math.inf:
            inside[2] = tag(
                "text", f"{_short(method)}, missing", x=RIGHT + 64, y=y + 4.5, class_="axis"
            )
        yield tag("g", *inside, class_="row", style=f"--s:{colour}")


def _short(text: str, most: int = 17) -> str:
    text = printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


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
            text = f"{value:g}".replace("-", MINUS)
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=end, class_="grid"))
            parts.append(tag("text", text, x=x, y=end + 16, class_="tick middle"))
        for method, entry in entries.items():
            parts.append(_dots(report, method, entry, across, y + step / 2, left))
            y += step
        y = end + 34
    label = f"{report.title}: {scores.title(report.metric)}"
    parts.append(tag("text", _dots_key(report), x=left, y=y + 4, class_="axis"))
    return picture(WIDTH, y + 14, label, *parts)


def _dots_key(report: TableReport) -> str:
    text = f"{scores.title(report.metric)}; dots: measured, mean ± deviation over seeds"
    return f"{text}; rings: published" if report.has_published else text


def _shown_spreads(entry: Entry) -> list[Spread]:
    found = [] if entry.published is None else [Spread(*entry.published, count=0)]
    if entry.measured is not None and math.isfinite(entry.measured.mean):
        found.append(entry.measured)
    return found


def _dots(
    report: TableReport, method: str, entry: Entry, across: Scale, y: float, left: float
) -> Markup:
    colour = "var(--ink)" if method == report.baseline else COLOURS[0]
    parts = [tag("text", _short(method, 20), x=left - 12, y=y + 4, class_="axis end")]
    for found in _shown_spreads(entry):
        ours = found is entry.measured
        low, high = (across(value) for value in _reach(found))
        place = y - 3 if ours else y + 4
        kind = "measured" if ours else "published"
        text = f"{method}, {kind}: {scores.spread(report.metric, found)}"
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
