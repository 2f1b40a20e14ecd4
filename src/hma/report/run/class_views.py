"""What is mistaken for what, and how far probabilities can be trusted, ready for the template."""

import math

import numpy as np

from hma.report.numbers import percent
from hma.report.run.charts import NAMED, matrix_chart, reliability_chart
from hma.report.run.run_report import RunReport
from hma.report.run.score_views import closely, own_results
from hma.report.run.trial import ClassResult, Trial
from hma.report.run.verdict import interval
from hma.report.statistics import Integers, wilson

NUMBERED = 25
"""Classes up to which a confusion matrix shows its numbers."""
MISTAKES = 8
"""Most frequent mistakes listed."""


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
                "cells": _cells(result.confusion, report.classes) if numbered else None,
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
    """Return precision and recall of each class, of each method in its own context."""
    held = [(r, style) for r, style in own_results(trial) if isinstance(r, ClassResult)]
    rows: list[dict[str, object]] = []
    for c, label in enumerate(report.classes):
        cells = [(wilson(*_share(r.confusion, c, axis)), s) for axis in (0, 1) for r, s in held]
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
        for result, name, style in closely(trial)
        if isinstance(result, ClassResult)
    ]
