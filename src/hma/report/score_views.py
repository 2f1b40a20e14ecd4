"""How scores are laid out: tiles, tables, differences and curves, ready for the template."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.charts import (
    NAMED,
    Line,
    against_chart,
    difference_chart,
    line_chart,
    matrix_chart,
    reliability_chart,
    residual_chart,
)
from hma.report.numbers import MISSING, percent, plain, probability, short
from hma.report.run_report import (
    MEMORY,
    MIXTURE,
    PLAIN,
    Candidate,
    ClassResult,
    Comparison,
    LabelsResult,
    NumberResult,
    Promises,
    Result,
    RunReport,
    Trial,
)
from hma.report.statistics import Floats, Integers, wilson
from hma.report.svg import spread
from hma.report.verdict import ahead, amount, change, change_interval, interval, named, verdict

SERIES = {
    PLAIN: ("plain",),
    MEMORY: ("memory", "memory second", "memory third"),
    MIXTURE: ("mixture",),
}
"""Classes of colour and dash in the style sheet, for each method's contexts."""
NUMBERED = 25
"""Classes up to which a confusion matrix shows its numbers."""
MISTAKES = 8
"""Most frequent mistakes listed."""
AUROC = METRICS["auroc"]


def style_of(method: str, place: int) -> str:
    """Return the style of a method's context at ``place`` among its contexts."""
    styles = SERIES.get(method, ("simple",))
    return f"series {styles[min(place, len(styles) - 1)]}"


def own_results(trial: Trial) -> list[tuple[Result, str]]:
    """Return plain backbone, memory and what is deployed, each in its own context and style."""
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


def matrices(report: RunReport, trial: Trial) -> list[dict[str, object]]:
    """Return the confusion matrix of each method and context and its most frequent mistakes.

    That of what is deployed is open at first.
    """
    found: list[dict[str, object]] = []
    opened = next(r for r, _, _ in closely(trial) if r.method == trial.deployed)
    numbered = len(report.classes) <= NUMBERED
    for result, name, style in closely(trial):
        assert isinstance(result, ClassResult)
        found.append(
            {
                "name": name,
                "style": style,
                "open": result is opened,
                "cells": _matrix_cells(result.confusion, report.classes) if numbered else None,
                "svg": None if numbered else matrix_chart(result.confusion, report.classes),
                "mistakes": _mistakes(result.confusion, report.classes),
                "wrong": int(result.confusion.sum() - np.trace(result.confusion)),
            }
        )
    return found


def cell_size(classes: int) -> int:
    """Return the width of a cell of a confusion matrix in pixels."""
    return 68 if classes <= 4 else 42 if classes <= 10 else 32


def least_width(classes: int) -> int:
    """Return how wide in pixels a picture of a confusion matrix has to be to be read."""
    return 110 + 12 * classes if classes <= NAMED else 0


def _matrix_cells(confusion: Integers, classes: tuple[str, ...]) -> list[list[dict[str, object]]]:
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    return [
        [
            {
                "count": int(confusion[t, p]),
                "share": f"{shares[t, p]:.3f}",
                "strong": shares[t, p] > 0.5,
                "right": t == p,
                "title": f"{classes[t]} called {classes[p]}: {confusion[t, p]} rows, "
                f"{shares[t, p]:.1%} of {classes[t]}",
            }
            for p in range(len(classes))
        ]
        for t in range(len(classes))
    ]


def _mistakes(confusion: Integers, classes: tuple[str, ...]) -> list[tuple[str, str, int, str]]:
    wrong = confusion - np.diag(np.diag(confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MISTAKES]
    found = []
    for place in order.tolist():
        t, p = divmod(place, len(classes))
        if wrong[t, p]:
            share = percent(float(wrong[t, p]) / float(confusion[t].sum()))
            found.append((classes[t], classes[p], int(wrong[t, p]), share))
    return found


def class_rows(report: RunReport, trial: Trial) -> list[dict[str, object]]:
    """Return precision and recall of each class, of each method in its own context."""
    held = [(r, style) for r, style in own_results(trial) if isinstance(r, ClassResult)]
    rows: list[dict[str, object]] = []
    for c, label in enumerate(report.classes):
        cells = [(wilson(*_right_of(r.confusion, c, axis)), s) for axis in (0, 1) for r, s in held]
        rows.append(
            {
                "label": label,
                "rows": int(held[0][0].confusion[c].sum()),
                "cells": [
                    {
                        "text": percent(v.value),
                        "width": "0" if math.isnan(v.value) else f"{100 * v.value:.1f}",
                        "title": f"95% interval {interval('accuracy', v)}",
                        "style": style,
                    }
                    for v, style in cells
                ],
            }
        )
    return rows


def _right_of(confusion: Integers, c: int, axis: int) -> tuple[int, int]:
    """Return rows right and rows in all: of those called ``c`` (axis 0), of those that are it."""
    return int(confusion[c, c]), int(confusion.sum(axis=axis)[c])


def reliabilities(trial: Trial) -> list[dict[str, object]]:
    """Return the reliability diagram of each method and context."""
    return [
        {
            "name": name,
            "style": style,
            "error": f"{result.calibration.error:.3f}",
            "svg": reliability_chart(result.calibration, style),
        }
        for result, name, style in closely(trial)
        if isinstance(result, ClassResult)
    ]


def label_rows(report: RunReport, trial: Trial) -> list[dict[str, object]]:
    """Return rows and AUROC of each label, of each method in its own context; the mean last."""
    held = [(r, style) for r, style in own_results(trial) if isinstance(r, LabelsResult)]
    first = held[0][0]
    rows: list[dict[str, object]] = []
    for place, label in enumerate(report.classes):
        rows.append(
            {
                "label": label,
                "yes": int(first.yes[place]),
                "no": int(first.no[place]),
                "missing": trial.rows - int(first.yes[place] + first.no[place]),
                "cells": [_cell(r.auroc[place], style) for r, style in held],
            }
        )
    mean = [_cell(r.scores[AUROC.name], style) for r, style in held]
    rows.append({"label": "mean", "yes": "", "no": "", "missing": "", "cells": mean})
    return rows


def _cell(found: Interval, style: str) -> dict[str, str]:
    return {
        "text": amount(AUROC.name, found.value),
        "ends": interval(AUROC.name, found),
        "style": style,
    }


def number_views(trial: Trial) -> list[dict[str, object]]:
    """Return both drawings of each method and context, on the same axes for all."""
    held = [(r, n, s) for r, n, s in closely(trial) if isinstance(r, NumberResult)]
    ends = spread([v for r, _, _ in held for v in (*_ends(r.true), *_ends(r.said))])
    apart = max(float(np.abs(r.said - r.true).max()) for r, _, _ in held) or 1.0
    return [
        {
            "name": name,
            "style": style,
            "against": against_chart(result, ends, style),
            "residuals": residual_chart(result, apart, style),
            "bias": _bias(result),
        }
        for result, name, style in held
    ]


def _bias(result: NumberResult) -> str:
    apart = float((result.said - result.true).mean())
    return f"{plain(abs(apart))} too {'high' if apart > 0 else 'low'}"


def _ends(values: Floats) -> tuple[float, float]:
    return float(values.min()), float(values.max())


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
