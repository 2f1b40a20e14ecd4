"""All candidates on the same test rows: scores, and differences to the plain backbone."""

import math
from typing import Any, NamedTuple

from markupsafe import Markup

from hma.metrics import METRICS
from hma.report import verdict as words
from hma.report.charts import Mark, Strip, strip_chart
from hma.report.html import fill
from hma.report.numbers import MINUS, MISSING, percent, plain, probability
from hma.report.run_report import (
    MEMORY,
    PLAIN,
    Candidate,
    ClassResult,
    RunReport,
    Section,
    Trial,
)
from hma.report.scoring import ahead
from hma.report.verdict import amount, change, change_interval, interval, verdict


class Tile(NamedTuple):
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
    results = trial.own
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


def score_rows(report: RunReport, trial: Trial) -> list[dict[str, Any]]:
    """Return the table of scores: for each method and context the metrics, best in bold."""
    best = {metric: _best(metric, trial) for metric in trial.results[0].scores}
    against = {(found.method, found.context): found for found in trial.comparisons}
    known = {candidate.method: candidate for candidate in report.candidates}
    rows: list[dict[str, Any]] = []
    for result, name, style in trial.named_results:
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
    """Draw the differences of the headline metric for every test set and context."""
    scale = 100 if METRICS[report.metric].share else 1
    strips = []
    for trial in report.tests:
        names = {(r.method, r.context): name for r, name, _ in trial.named_results}
        for found in trial.comparisons:
            ends = found.differences[report.metric]
            name = names[found.method, found.context]
            name = f"{trial.name}: {name}" if len(report.tests) > 1 else name
            outcome = verdict(report, trial, found.context, found.method).outcome
            said = f"{change(report.metric, ends.value)}, {change_interval(report.metric, ends)}"
            value, low, high = (scale * v for v in (ends.value, ends.low, ends.high))
            mark = Mark(value, "dot", said, low, high)
            strips.append(Strip(name, f"outcome-{outcome}", [mark]))
    if not strips:
        return None
    title = METRICS[report.metric].title
    return strip_chart(
        "Differences with 95% intervals",
        strips,
        unit=f"minus plain backbone, {f'points of {title}' if scale == 100 else title}",
        write=_signed,
        zero=True,
    )


def _signed(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:+.4g}".replace("-", MINUS)


def draw(report: RunReport, tests: tuple[str, ...]) -> Markup:
    """Draw the table of scores of each test set, and the differences of all."""
    return fill(
        "comparison",
        report=report,
        score_rows=score_rows,
        verdict=words,
        drawing=differences(report),
    )


SECTION = Section(
    "comparison",
    "Comparison",
    "All candidates on the same test rows",
    lambda facts: tuple(facts.tests),
    draw,
)
