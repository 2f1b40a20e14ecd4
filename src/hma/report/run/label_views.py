"""Several yes/no labels: how well each is told apart, ready for the template."""

from hma.metrics import METRICS
from hma.metrics.resampling import Interval
from hma.report.run.run_report import RunReport
from hma.report.run.score_views import own_results
from hma.report.run.trial import LabelsResult, Trial
from hma.report.run.verdict import amount, interval

AUROC = METRICS["auroc"]


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
