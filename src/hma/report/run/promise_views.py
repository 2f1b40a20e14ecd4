"""Coverages: what was kept of a promise, and what it costs, as a drawing and a table."""

from markupsafe import Markup

from hma.report.numbers import MISSING, percent, short
from hma.report.run.promises import Promises
from hma.report.svg import Scale, picture, tag

WIDTH, HEIGHT = 460.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 448.0, 14.0, 240.0


def promise_chart(found: Promises) -> Markup:
    """Return the share covered and the share unknown over the coverage that was asked for.

    A bar is the interval in which the share covered is expected, the dashed line the promise.
    """
    asked = [level.asked for level in found.levels]
    across = Scale(min(asked) - 0.02, max(1.0, max(asked)), LEFT, RIGHT)
    up = Scale(0, 1, BOTTOM, TOP)
    parts = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(tag("line", x1=LEFT, x2=RIGHT, y1=up(value), y2=up(value), class_="grid"))
        parts.append(tag("text", f"{value:.0%}", x=LEFT - 6, y=up(value) + 4, class_="tick end"))
    ends = f"M{across(min(asked)):.1f} {up(min(asked)):.1f}L{across(1.0):.1f} {up(1.0):.1f}"
    parts.append(tag("path", d=ends, class_="ideal"))
    for level in found.levels:
        x, (low, high) = across(level.asked), level.interval
        parts.append(tag("line", x1=x, x2=x, y1=up(low), y2=up(high), class_="grid"))
        if level.asked != 0.99:  # too near its neighbour to be read
            name = f"{level.asked:.0%}"
            parts.append(tag("text", name, x=x, y=BOTTOM + 18, class_="tick middle"))
        for share, look, what in (
            (level.covered, "--o:var(--memory)", "covered"),
            (level.unknown, "--o:var(--plain)", "unknown"),
        ):
            if share is not None:
                title = tag("title", f"{level.asked:.4g} asked: {percent(share)} {what}")
                dot = tag("circle", title, cx=x, cy=up(share), r=4.5, class_="dot")
                parts.append(tag("g", dot, style=look))
    label = "coverage that was asked for"
    parts.append(tag("text", label, x=(LEFT + RIGHT) / 2, y=HEIGHT - 6, class_="axis middle"))
    return picture(WIDTH, HEIGHT, "Coverage kept, and rows called unknown", *parts)


def promise_rows(found: Promises) -> list[dict[str, str]]:
    """Return a line of the table for each coverage."""
    return [
        {
            "asked": f"{level.asked:.4g}",
            "covered": MISSING if level.covered is None else percent(level.covered),
            "interval": " to ".join(map(percent, level.interval)),
            "size": MISSING if level.size is None else short(level.size),
            "unknown": MISSING if level.unknown is None else percent(level.unknown),
        }
        for level in found.levels
    ]
