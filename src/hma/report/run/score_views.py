"""How results are laid out: tables, matrices and drawings, ready for the template."""

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from hma.metrics import METRICS
from hma.report.numbers import MISSING, percent, probability
from hma.report.run.charts import (
    Line,
    difference_chart,
    line_chart,
    matrix_chart,
    reliability_chart,
)
from hma.report.run.run_report import MEMORY, PLAIN, Result, RunReport, Trial
from hma.report.run.verdict import (
    amount,
    change,
    change_interval,
    interval,
    named,
    verdict,
)
from hma.report.statistics import Integers, Interval, wilson

NUMBERED = 25
"""Classes up to which a confusion matrix shows its numbers."""
MISTAKES = 8
"""Most frequent mistakes listed."""
SERIES = {PLAIN: ("plain",), MEMORY: ("memory", "memory second", "memory third")}
"""Classes of colour and dash in the style sheet, for each method's contexts."""


def style_of(method: str, place: int) -> str:
    """Return the style of a method's context at ``place`` among its contexts."""
    styles = SERIES[method]
    return f"series {styles[min(place, len(styles) - 1)]}"


def styled(trial: Trial) -> list[tuple[Result, str, str]]:
    """Return each result with its name and style."""
    found = []
    seen = {PLAIN: 0, MEMORY: 0}
    for result in trial.results:
        found.append((result, named(result, trial), style_of(result.method, seen[result.method])))
        seen[result.method] += 1
    return found


@dataclass(frozen=True)
class Tile:
    """A number to be seen from afar."""

    name: str
    value: str
    unit: str
    note: str
    style: str


def tiles(report: RunReport, trial: Trial) -> list[Tile]:
    """Return the numbers of the headline: each method's own context, and the difference."""
    metric = report.metric
    found = []
    for method in (PLAIN, MEMORY):
        result = next((r for r in trial.results if r.method == method), None)
        if result is not None:
            score = result.scores[metric]
            note = f"95% interval {interval(metric, score)}"
            found.append(Tile(method, amount(metric, score.value), "", note, style_of(method, 0)))
    if trial.comparisons:
        ends = trial.comparisons[0].differences[metric]
        unit = "points" if METRICS[metric].share else ""
        outcome = verdict(report, trial).outcome
        note = f"95% interval {change_interval(metric, ends)}"
        found.append(
            Tile("Difference", change(metric, ends.value), unit, note, f"wide outcome-{outcome}")
        )
    return found


def score_rows(trial: Trial) -> list[dict[str, object]]:
    """Return the table of scores: for each method and context the metrics, best in bold."""
    best = {metric: _best(metric, trial) for metric in trial.results[0].scores}
    against = {found.context: found for found in trial.comparisons}
    rows: list[dict[str, object]] = []
    for result, name, style in styled(trial):
        found = against.get(result.context) if result.method == MEMORY else None
        rows.append(
            {
                "name": name,
                "style": style,
                "cells": [
                    (amount(m, s.value), interval(m, s), s.value == best[m])
                    for m, s in result.scores.items()
                ],
                "error": f"{result.calibration.error:.3f}",
                "p": MISSING if found is None else probability(found.p_value),
            }
        )
    return rows


def _best(metric: str, trial: Trial) -> float:
    values = [r.scores[metric].value for r in trial.results]
    defined = [value for value in values if not math.isnan(value)]
    return (max if METRICS[metric].larger_is_better else min)(defined, default=math.nan)


def differences(report: RunReport) -> Markup | None:
    """Return the differences of the headline metric for every test set and context."""
    scale = 100 if METRICS[report.metric].share else 1
    rows = []
    for trial in report.tests:
        for found in trial.comparisons:
            ends = found.differences[report.metric]
            wide = Interval(scale * ends.value, scale * ends.low, scale * ends.high)
            parts = [trial.name] if len(report.tests) > 1 else []
            parts += [f"HMA, {found.context}"]
            rows.append((": ".join(parts), wide, verdict(report, trial, found.context).outcome))
    title = METRICS[report.metric].title
    unit = f"points of {title}" if scale == 100 else title
    return difference_chart(rows, unit=f"HMA minus plain backbone, {unit}") if rows else None


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
    """Return the confusion matrix of each method and context and its most frequent mistakes."""
    found: list[dict[str, object]] = []
    numbered = len(report.classes) <= NUMBERED
    for result, name, style in styled(trial):
        found.append(
            {
                "name": name,
                "style": style,
                "cells": _cells(result.confusion, report.classes) if numbered else None,
                "svg": None if numbered else matrix_chart(result.confusion),
                "mistakes": _mistakes(result.confusion, report.classes),
                "wrong": int(result.confusion.sum() - np.trace(result.confusion)),
            }
        )
    return found


def cell_size(classes: int) -> int:
    """Return the width of a cell of a confusion matrix in pixels."""
    return 68 if classes <= 4 else 42 if classes <= 10 else 32


def _cells(confusion: Integers, classes: tuple[str, ...]) -> list[list[dict[str, object]]]:
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
    """Return precision and recall of each class, plain and HMA in its own context."""
    shown = [
        next((r for r in trial.results if r.method == method), None) for method in (PLAIN, MEMORY)
    ]
    held = [(r, SERIES[r.method][0]) for r in shown if r is not None]
    rows: list[dict[str, object]] = []
    for c, label in enumerate(report.classes):
        cells = [(wilson(*_share(r.confusion, c, axis)), s) for axis in (0, 1) for r, s in held]
        rows.append(
            {
                "label": label,
                "rows": int(trial.results[0].confusion[c].sum()),
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


def _share(confusion: Integers, c: int, axis: int) -> tuple[int, int]:
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
        for result, name, style in styled(trial)
    ]
