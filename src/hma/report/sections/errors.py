"""What was answered wrong: classes, labels or numbers, and how far probabilities can be trusted."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.charts import HeatMap, Line, Plot, Point, Series, panel_chart
from hma.report.html import fill
from hma.report.numbers import percent, plain, short
from hma.report.run_facts import RunFacts
from hma.report.run_report import (
    ClassResult,
    LabelsResult,
    NumberResult,
    RunReport,
    Section,
    Trial,
    colour_of,
)
from hma.report.statistics import Calibration, Integers, evenly_spaced, wilson
from hma.report.svg import Axes, Look, Scale, marks, picture, tag
from hma.report.verdict import amount, interval
from hma.targets import Target

NUMBERED = 25
"""Classes up to which a confusion matrix shows its numbers."""
NAMED = 80
"""Classes up to which a confusion matrix that is a picture has names at its sides."""
MISTAKES = 8
"""Most frequent mistakes listed."""
POINTS = 600
"""Rows drawn, evenly spread over all."""
BINS = 30
AUROC = METRICS["auroc"]


def matrices(report: RunReport, trial: Trial) -> list[dict[str, Any]]:
    """Return the confusion matrix of each method and context and its most frequent mistakes.

    That of what is deployed is open at first.
    """
    found: list[dict[str, Any]] = []
    opened = next(r for r, _, _ in trial.main_results if r.method == trial.deployed)
    numbered = len(report.classes) <= NUMBERED
    for result, name, style in trial.main_results:
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


def matrix_chart(confusion: Integers, classes: tuple[str, ...]) -> Markup:
    """Draw a confusion matrix of many classes: the darker the larger the share.

    Up to ``NAMED`` classes are named at its sides, and each cell says what it is on hover.
    """
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    lines = tuple(Line(name) for name in classes)
    few = len(classes) <= NAMED
    groups = tuple((name, 1) for name in classes) if few else ()
    panel = HeatMap(
        title="Confusion matrix, true classes downwards",
        values=tuple(tuple(v or None for v in line) for line in shares.tolist()),
        rows=lines,
        columns=lines,
        row_groups=groups,
        column_groups=groups,
        value_title="share of the true class",
        words=partial(_said_of, confusion, classes) if few else None,
    )
    return panel_chart(panel, 180.0 + 12 * len(classes) if few else 520.0)


def _said_of(confusion: Integers, classes: tuple[str, ...], t: int, p: int) -> str:
    count, share = confusion[t, p], confusion[t, p] / max(int(confusion[t].sum()), 1)
    return f"{classes[t]} called {classes[p]}: {count} rows, {share:.1%} of {classes[t]}"


def cell_size(classes: int) -> int:
    """Return the width of a cell of a confusion matrix in pixels."""
    return 68 if classes <= 4 else 42 if classes <= 10 else 32


def _matrix_cells(confusion: Integers, classes: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    return [
        [
            {
                "count": int(confusion[t, p]),
                "share": f"{shares[t, p]:.3f}",
                "strong": shares[t, p] > 0.5,
                "title": _said_of(confusion, classes, t, p),
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


def class_rows(report: RunReport, trial: Trial) -> list[dict[str, Any]]:
    """Return precision and recall of each class, of each method in its own context."""
    held = [(r, style) for r, style in trial.own if isinstance(r, ClassResult)]
    rows: list[dict[str, Any]] = []
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


def reliabilities(trial: Trial) -> list[dict[str, Any]]:
    """Return the reliability diagram of each method and context."""
    return [
        {
            "name": name,
            "style": style,
            "error": f"{result.calibration.error:.3f}",
            "svg": reliability_chart(result.calibration, style),
        }
        for result, name, style in trial.main_results
        if isinstance(result, ClassResult)
    ]


def reliability_chart(found: Calibration, style: str) -> Markup:
    """Return accuracy against confidence in bins, with the number of rows of each below."""
    size, left, top = 200.0, 40.0, 10.0
    across, up = axes = Axes(Scale(0, 1, left, left + size), Scale(0, 1, top + size, top))
    written = marks(across, "{:.0%}".format, about=2)
    parts = [
        *axes.levels(written),
        tag("path", d=f"M{left} {top + size}L{left + size} {top}", class_="ideal"),
        *axes.steps(written, below=56),
        axes.title("confidence", below=74),
    ]
    most = max(int(found.count.max()), 1)
    for (low, high), count, sure, right in zip(
        pairwise(found.edges.tolist()),
        found.count.tolist(),
        found.confidence.tolist(),
        found.accuracy.tolist(),
        strict=True,
    ):
        if count == 0:
            continue
        title = tag("title", f"{count} rows: {sure:.1%} sure on average, {right:.1%} right")
        x, width = across(low) + 1, across(high) - across(low) - 2
        tall = 34 * count / most
        bar = tag("rect", x=x, y=up(right), width=width, height=up(0) - up(right), class_="bar")
        gap = tag("path", d=f"M{x:.1f} {up(sure):.1f}h{width:.1f}", class_="sure")
        base = top + size + 42
        rows = tag("rect", x=x, y=base - tall, width=width, height=tall, class_="rows")
        parts.append(tag("g", title, bar, gap, rows))
    inside = tag("g", *parts, class_=style)
    return picture(left + size + 14, top + size + 80, "Accuracy at each confidence", inside)


def label_rows(report: RunReport, trial: Trial) -> list[dict[str, Any]]:
    """Return rows and AUROC of each label, of each method in its own context; the mean last."""
    held = [(r, style) for r, style in trial.own if isinstance(r, LabelsResult)]
    first = held[0][0]
    rows: list[dict[str, Any]] = []
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


def number_views(trial: Trial) -> list[dict[str, Any]]:
    """Return both drawings of each method and context, residuals on the same axis for all."""
    held = [(r, n, s) for r, n, s in trial.main_results if isinstance(r, NumberResult)]
    apart = max(float(np.abs(r.said - r.true).max()) for r, _, _ in held) or 1.0
    return [
        {
            "name": name,
            "style": style,
            "against": against_chart(result),
            "residuals": _residuals(result, apart),
            "end": short(apart),
            "bias": _bias(result),
        }
        for result, name, style in held
    ]


def against_chart(result: NumberResult) -> Markup:
    """Draw a point for each row: true to the right, predicted upwards."""
    kept = evenly_spaced(len(result.true), POINTS)
    pairs = zip(result.true[kept].tolist(), result.said[kept].tolist(), strict=True)
    points = tuple(Point(true, said) for true, said in pairs)
    ends = [v for p in points for v in (p.x, p.y)]
    ideal = tuple(Point(value, value) for value in (min(ends), max(ends)))
    rows = Series(name="test rows", look=Look(colour_of(result.method)), points=points)
    line = Series(name="right", look=Look("var(--faint)", 2), points=ideal, joined=True)
    title = "Predicted against true"
    plot = Plot(title=title, series=(line, rows), x_title="true", square=True)
    return panel_chart(plot, 300.0)


def _residuals(result: NumberResult, apart: float) -> list[tuple[str, str]]:
    """Return how many rows were missed by how much, as heights and words of bars."""
    counts, edges = np.histogram(result.said - result.true, bins=BINS, range=(-apart, apart))
    ends = [f"{short(low)} to {short(high)}" for low, high in pairwise(edges.tolist())]
    heights = 100 * counts / max(counts.max(), 1)
    bars = zip(heights.tolist(), counts.tolist(), ends, strict=True)
    return [(f"{height:.0f}", f"{count} rows: {where}") for height, count, where in bars]


def _bias(result: NumberResult) -> str:
    apart = float((result.said - result.true).mean())
    return f"{plain(abs(apart))} too {'high' if apart > 0 else 'low'}"


def _section(
    key: str,
    name: str,
    title: str,
    serves: Callable[[Target], bool],
    **views: Callable[..., Any],
) -> Section:
    def gather(facts: RunFacts) -> tuple[str, ...]:
        return tuple(facts.tests) if serves(facts.target) else ()

    def draw(report: RunReport, tests: tuple[str, ...]) -> Markup:
        return fill(key, report=report, **views)

    return Section(key, name, title, gather, draw)


def _has_classes(target: Target) -> bool:
    return target.picks_one


def _has_labels(target: Target) -> bool:
    return target.gives_probabilities and not target.picks_one


def _has_number(target: Target) -> bool:
    return not target.gives_probabilities


SECTIONS = (
    _section(
        "errors",
        "Mistakes",
        "What is mistaken for what",
        _has_classes,
        matrices=matrices,
        cell_size=cell_size,
        class_rows=class_rows,
    ),
    _section("labels", "Labels", "Label by label", _has_labels, label_rows=label_rows),
    _section(
        "number",
        "Errors",
        "What was said against what is true",
        _has_number,
        number_views=number_views,
    ),
    _section(
        "calibration", "Calibration", "Calibration", _has_classes, reliabilities=reliabilities
    ),
)
