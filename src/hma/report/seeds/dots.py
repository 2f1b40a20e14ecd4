"""A drawing of every seed's score: one line of dots for each candidate."""

import math

from markupsafe import Markup

from hma.metrics import METRICS
from hma.report.numbers import short
from hma.report.run.verdict import amount
from hma.report.seeds.seeds_report import SeedsReport, SeedsTrial, Standing
from hma.report.svg import Scale, picture, spread, tag, ticks

WIDTH, STEP, TOP = 460.0, 46.0, 8.0


def dot_chart(report: SeedsReport, trial: SeedsTrial, metric: str) -> Markup:
    """Return the scores: a dot for each seed, a bar at the mean, the names above."""
    values = [value for one in trial.standings for value in one.scores[metric]]
    low, high = spread(values)
    across = Scale(low, high, 12.0, WIDTH - 12)
    bottom = TOP + STEP * len(trial.standings)
    shares = METRICS[metric].share
    parts: list[Markup] = []
    for value in ticks(low, high):
        x = across(value)
        for top in (TOP + STEP * i + 18 for i in range(len(trial.standings))):
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=top + 20, class_="grid"))
        text = f"{100 * value:.4g}%" if shares else short(value)
        parts.append(tag("text", text, x=x, y=bottom + 16, class_="tick middle"))
    for place, one in enumerate(trial.standings):
        parts.append(_candidate(report, one, metric, across, TOP + STEP * place + 28))
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
