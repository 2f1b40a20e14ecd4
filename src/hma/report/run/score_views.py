"""How scores are laid out: tiles, tables, differences and curves, ready for the template."""

import math
from collections import Counter
from dataclasses import dataclass

from markupsafe import Markup

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.numbers import MISSING, percent, plain, probability
from hma.report.run.charts import (
    Line,
    difference_chart,
    line_chart,
)
from hma.report.run.run_report import RunReport
from hma.report.run.trial import (
    MEMORY,
    MIXTURE,
    PLAIN,
    Candidate,
    ClassResult,
    Comparison,
    Result,
    Trial,
)
from hma.report.run.verdict import (
    ahead,
    amount,
    change,
    change_interval,
    interval,
    named,
    verdict,
)

SERIES = {
    PLAIN: ("plain",),
    MEMORY: ("memory", "memory second", "memory third"),
    MIXTURE: ("mixture",),
}
"""Classes of colour and dash in the style sheet, for each method's contexts."""


def style_of(method: str, place: int) -> str:
    """Return the style of a method's context at ``place`` among its contexts."""
    styles = SERIES.get(method, ("simple",))
    return f"series {styles[min(place, len(styles) - 1)]}"


def own_results(trial: Trial) -> list[tuple[Result, str]]:
    """Return plain backbone, HMA and what is deployed, in their own contexts with their styles."""
    found = []
    for method in dict.fromkeys((PLAIN, MEMORY, trial.deployed)):
        result = next((r for r in trial.results if r.method == method), None)
        if result is not None:
            found.append((result, style_of(method, 0)))
    return found


def styled(trial: Trial) -> list[tuple[Result, str, str]]:
    """Return each result with its name and style."""
    seen: Counter[str] = Counter()
    found = []
    for result in trial.results:
        found.append((result, named(result, trial), style_of(result.method, seen[result.method])))
        seen[result.method] += 1
    return found


def closely(trial: Trial) -> list[tuple[Result, str, str]]:
    """Return the results that are looked at closely: the two networks and what is deployed."""
    looked = (PLAIN, MEMORY, trial.deployed)
    return [one for one in styled(trial) if one[0].method in looked]


@dataclass(frozen=True)
class Tile:
    """A number to be seen from afar."""

    name: str
    value: str
    unit: str
    note: str
    style: str


def tiles(report: RunReport, trial: Trial) -> list[Tile]:
    """Return the numbers of the headline: what is deployed first, and its gain over plain."""
    metric = report.metric
    found = []
    results = own_results(trial)
    results.sort(key=lambda one: one[0].method != trial.deployed)
    for result, style in results:
        score = result.scores[metric]
        note = f"95% interval {interval(metric, score)}"
        name = result.method
        if report.deployed and name == trial.deployed:
            name, style = f"{name}, deployed", f"{style} deployed"
        found.append(Tile(name, amount(metric, score.value), "", note, style))
    compared = MEMORY if trial.deployed == PLAIN else trial.deployed
    if against := [one for one in trial.comparisons if one.method == compared]:
        ends = against[0].differences[metric]
        unit = "points" if METRICS[metric].share else ""
        outcome = verdict(report, trial).outcome
        note = f"{compared} minus plain, 95% interval {change_interval(metric, ends)}"
        found.append(
            Tile("Difference", change(metric, ends.value), unit, note, f"wide outcome-{outcome}")
        )
    return found


def score_rows(report: RunReport, trial: Trial) -> list[dict[str, object]]:
    """Return the table of scores: for each method and context the metrics, best in bold."""
    best = {metric: _best(metric, trial) for metric in trial.results[0].scores}
    against = {(found.method, found.context): found for found in trial.comparisons}
    known = {candidate.method: candidate for candidate in report.candidates}
    rows: list[dict[str, object]] = []
    for result, name, style in styled(trial):
        found = against.get((result.method, result.context))
        candidate = known.pop(result.method, None)  # said once, with the first context
        rows.append(
            {
                "name": name,
                "style": style,
                "deployed": bool(report.deployed) and result.method == trial.deployed,
                "share": _share(candidate),
                "loss": _loss(candidate),
                "cells": [
                    (amount(m, s.value), interval(m, s), s.value == best[m])
                    for m, s in result.scores.items()
                ],
                "error": f"{result.calibration.error:.3f}"
                if isinstance(result, ClassResult)
                else None,
                "p": MISSING
                if found is None or found.p_value is None
                else probability(found.p_value),
            }
        )
    scored = {result.method for result in trial.results}
    for name, scores in trial.simple.items():
        if name in scored:
            continue
        values = {m: scores.get(m, math.nan) for m in best}
        cells = [(amount(m, value), "", value == best[m]) for m, value in values.items()]
        error = MISSING if isinstance(trial.results[0], ClassResult) else None
        look = {"name": name, "style": "series simple", "deployed": False, "share": "", "loss": ""}
        rows.append({**look, "cells": cells, "error": error, "p": MISSING})
    return rows


def _share(candidate: Candidate | None) -> str:
    if candidate is None:
        return ""
    return MISSING if candidate.share is None else percent(candidate.share, 0)


def _loss(candidate: Candidate | None) -> str:
    if candidate is None:
        return ""
    loss = candidate.validation_loss
    return MISSING if loss is None else plain(loss)


def _best(metric: str, trial: Trial) -> float:
    values = [r.scores[metric].value for r in trial.results]
    values += [scores.get(metric, math.nan) for scores in trial.simple.values()]
    defined = [value for value in values if not math.isnan(value)]
    return max(defined, key=lambda value: ahead(metric, value), default=math.nan)


def differences(report: RunReport) -> Markup | None:
    """Return the differences of the headline metric for every test set and context."""
    scale = 100 if METRICS[report.metric].share else 1
    rows = []
    for trial in report.tests:
        for found in trial.comparisons:
            ends = found.differences[report.metric]
            wide = Interval(scale * ends.value, scale * ends.low, scale * ends.high)
            parts = [trial.name] if len(report.tests) > 1 else []
            parts += [_compared(found, trial)]
            outcome = verdict(report, trial, found.context, found.method).outcome
            rows.append((": ".join(parts), wide, outcome))
    title = METRICS[report.metric].title
    unit = f"points of {title}" if scale == 100 else title
    return difference_chart(rows, unit=f"minus plain backbone, {unit}") if rows else None


def _compared(found: Comparison, trial: Trial) -> str:
    several = sum(other.method == found.method for other in trial.comparisons) > 1
    return f"{found.method}, {found.context}" if several else found.method


def curves(report: RunReport) -> list[dict[str, object]]:
    """Return the two drawings of the learning curves, each with its legend."""
    losses, scores = [], []
    for curve in report.curves:
        marked = None if curve.selected is None else float(curve.selected)
        x = [float(epoch) for epoch in curve.epochs]
        style = style_of(curve.method, 0)
        losses.append(Line(name=curve.method, style=style, x=x, y=curve.train_loss, marked=marked))
        for place, (context, y) in enumerate(curve.validation.items()):
            several = len(curve.validation) > 1
            name = f"{curve.method}, {context}" if several else curve.method
            style = style_of(curve.method, place)
            scores.append(Line(name=name, style=style, x=x, y=y, marked=marked))
    metric = METRICS[report.metric].title
    found: list[dict[str, object]] = []
    for title, lines, shares in (
        ("Training loss", losses, False),
        (f"Validation {metric}", scores, METRICS[report.metric].share),
    ):
        if any(math.isfinite(y) for line in lines for y in line.y):
            drawing = line_chart(title, lines, shares=shares)
            legend = [(line.name, line.style) for line in lines]
            found.append({"title": title, "svg": drawing, "legend": legend})
    return found
