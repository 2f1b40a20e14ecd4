"""A number: what was said against what is true, and by how much it misses, as drawings."""

from itertools import pairwise

import numpy as np
from markupsafe import Markup

from hma.report.numbers import plain, short
from hma.report.run.score_views import closely
from hma.report.run.trial import NumberResult, Trial
from hma.report.statistics import Floats
from hma.report.svg import Scale, picture, spread, tag, ticks

SIZE, LEFT, TOP = 300.0, 56.0, 10.0
POINTS = 600
"""Rows drawn, evenly spread over all."""
BINS = 30


def number_views(trial: Trial) -> list[dict[str, object]]:
    """Return both drawings of each method and context, on the same axes for all."""
    held = [(r, n, s) for r, n, s in closely(trial) if isinstance(r, NumberResult)]
    ends = spread([v for r, _, _ in held for v in (*_ends(r.true), *_ends(r.said))])
    apart = max(float(np.abs(r.said - r.true).max()) for r, _, _ in held) or 1.0
    return [
        {
            "name": name,
            "style": style,
            "against": _against(result, ends, style),
            "residuals": _residuals(result, apart, style),
            "bias": _bias(result),
        }
        for result, name, style in held
    ]


def _bias(result: NumberResult) -> str:
    apart = float((result.said - result.true).mean())
    return f"{plain(abs(apart))} too {'high' if apart > 0 else 'low'}"


def _ends(values: Floats) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _against(result: NumberResult, ends: tuple[float, float], style: str) -> Markup:
    """Return a point for each row: true to the right, predicted upwards."""
    across, up = Scale(*ends, LEFT, LEFT + SIZE), Scale(*ends, TOP + SIZE, TOP)
    base = TOP + SIZE
    parts = []
    for value in ticks(*ends):
        x, y, text = across(value), up(value), short(value)
        parts.append(tag("line", x1=LEFT, x2=LEFT + SIZE, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", text, x=LEFT - 6, y=y + 4, class_="tick end"))
        parts.append(tag("text", text, x=x, y=base + 16, class_="tick middle"))
    parts.append(tag("path", d=f"M{LEFT} {base}L{LEFT + SIZE} {TOP}", class_="ideal"))
    kept = np.unique(np.linspace(0, len(result.true) - 1, POINTS).astype(int))
    places = zip(result.true[kept].tolist(), result.said[kept].tolist(), strict=True)
    dots = "".join(
        f"M{across(t):.1f} {up(s):.1f}m-2.4 0a2.4 2.4 0 1 0 4.8 0a2.4 2.4 0 1 0 -4.8 0z"
        for t, s in places
    )
    parts.append(tag("path", d=dots, class_="bar"))
    parts.append(tag("text", "true", x=LEFT + SIZE / 2, y=base + 34, class_="axis middle"))
    inside = tag("g", *parts, class_=style)
    return picture(LEFT + SIZE + 14, base + 40, "Predicted against true", inside)


def _residuals(result: NumberResult, apart: float, style: str) -> Markup:
    """Return how many rows were missed by how much, too low to the left of 0."""
    counts, edges = np.histogram(result.said - result.true, bins=BINS, range=(-apart, apart))
    height = 90.0
    across = Scale(-apart, apart, LEFT, LEFT + SIZE)
    up = Scale(0, max(int(counts.max()), 1), TOP + height, TOP)
    parts = []
    for (low, high), count in zip(pairwise(edges.tolist()), counts.tolist(), strict=True):
        if count:
            title = tag("title", f"{count} rows: {short(low)} to {short(high)}")
            x, width = across(low) + 0.5, across(high) - across(low) - 1
            bar = {"x": x, "y": up(count), "width": width, "height": up(0) - up(count)}
            parts.append(tag("rect", title, **bar, class_="bar"))
    middle = across(0)
    parts.append(tag("line", x1=middle, x2=middle, y1=TOP, y2=TOP + height, class_="ideal"))
    for value in ticks(-apart, apart):
        text = short(value)
        parts.append(tag("text", text, x=across(value), y=TOP + height + 16, class_="tick middle"))
    label = "predicted minus true"
    parts.append(tag("text", label, x=middle, y=TOP + height + 34, class_="axis middle"))
    inside = tag("g", *parts, class_=style)
    return picture(LEFT + SIZE + 14, TOP + height + 40, "Residuals", inside)
