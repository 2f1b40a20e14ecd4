"""Sections on other metrics, and on what records measure besides scores."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import fmean
from typing import NamedTuple

from hma.metrics import METRICS
from hma.paper.edge_hits import EDGE_HITS
from hma.paper.report import scores
from hma.paper.report.scores import Paired, Spread, contexts_of, paired, score, spread_of
from hma.paper.report.table_report import Field, Place, Sheet, TableReport, named_once
from hma.questions.audit import AUDIT, PERMUTED
from hma.training import Record

READ = 3.0
"""Points that a memory loses at least that is said to be read."""
COVERAGE = "coverage"
"""Of a record: what thresholds of its validation rows came to on its test rows."""
COVERED = {
    "asked": 100.0,
    "of sets": 100.0,
    "labels in a set": 1.0,
    "scores are within": 100.0,
    "of known rows accepted": 100.0,
    "accepted is within": 100.0,
    "of strange rows rejected": 100.0,
}
"""Its numbers, with the unit each is shown in."""
AS = "accuracy"
"""The metric that shares of rows and of edges are printed like."""


def _over_seeds(
    report: TableReport, number: Callable[[Record], float | None]
) -> dict[Place, Spread]:
    """Return a number of records by task and row, over the seeds that have it."""
    values: dict[Place, list[float]] = {}
    for cell, record in report.held.items():
        found = number(record)
        if found is not None:
            values.setdefault((cell.task, cell.method), []).append(found)
    spreads = {place: spread_of(each) for place, each in values.items()}
    return {place: one for place, one in spreads.items() if one is not None}


# ------------------------------------------------------------------------------------ other metrics


def beside_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield a sheet for each other metric of the table, rows down and tasks across.

    Another metric may say that a difference is none.
    """
    title = scores.title(report.table.metric)
    by_metric = any(row.work is None for row in report.table.rows.values())
    note = f"Epochs are selected by {title} all the same." if by_metric else ""
    for metric in report.table.beside:
        held = _over_seeds(report, partial(_own_score, metric))
        if held:
            lines = tuple(
                (
                    Field(method),
                    *(Field(scores.spread(metric, held.get((t, method)))) for t in report.tasks),
                )
                for method in report.methods
            )
            name = f"Beside it, {scores.title(metric)}"
            yield Sheet("beside", name, ("method", *report.tasks), lines, note)


def _own_score(metric: str, record: Record) -> float:
    return score(record, metric, contexts_of(record)[0])


# ------------------------------------------------------------------------------ is the memory used?


def permuted_of(report: TableReport) -> dict[Place, Spread]:
    """Return what the score of a row changes by, by task and row, where that was measured."""
    return _over_seeds(report, partial(_permuted, report.table.metric))


def permuted_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield what rows with a memory lose when the labels of stored rows are permuted."""
    metric, found = report.table.metric, permuted_of(report)
    if not found:
        return
    names = [name for name in report.methods if any(row == name for _, row in found)]
    tasks = [task for task in report.tasks if (task, names[0]) in found]
    lines = [
        (Field(task), *(Field(_change(metric, found.get((task, name)))) for name in names))
        for task in tasks
    ]
    lost = {
        name: sum(found[t, name].mean <= -READ for t in tasks if (t, name) in found)
        for name in names
    }
    counts = [f"{name} on {count}" for name, count in lost.items()]
    note = (
        f"Change of the score, mean over seeds, when the labels of the stored rows are permuted. "
        f"Tasks of {len(tasks)} on which at least {READ:g} points are lost: {', '.join(counts)}."
    )
    yield Sheet("permuted", "Does the model use its memory?", ("task", *names), tuple(lines), note)


def _permuted(metric: str, record: Record) -> float | None:
    """Return what the score of a record changes by; None where that was not measured."""
    audits = record.measures.get(AUDIT, {}).values()
    found = [audit["changes"].get(PERMUTED, {}).get(metric) for audit in audits]
    known = [one["change"] for one in found if one is not None and one["change"] is not None]
    return METRICS[metric].scale * fmean(known) if known else None


def _change(metric: str, found: Spread | None) -> str:
    return scores.amount(metric, None if found is None else found.mean, sign="+")


# ------------------------------------------------------------------------- edges that labels are of


class EdgeHits(NamedTuple):
    """How often the edges that count for a row are those that the label is made of.

    Args:
        measured: Share in percent, over seeds.
        over_chance: Beside as many edges drawn at random.
        over_baseline: Beside the baseline; None of the baseline itself.
    """

    measured: Spread | None
    over_chance: Paired | None
    over_baseline: Paired | None


def edge_hits_of(report: TableReport) -> dict[tuple[str, str, str], EdgeHits]:
    """Return hits by task, test and row over seeds, where they were measured."""
    hits: dict[tuple[str, str, str], dict[int, float]] = {}
    chance: dict[tuple[str, str, str], dict[int, float]] = {}
    for cell, record in report.held.items():
        for test, found in record.measures.get(EDGE_HITS, {}).items():
            place = (cell.task, test, cell.method)
            hits.setdefault(place, {})[cell.seed] = 100 * found["hits"]
            chance.setdefault(place, {})[cell.seed] = 100 * found["chance"]
    baseline = report.table.baseline
    return {
        (task, test, method): EdgeHits(
            spread_of(list(own.values())),
            paired(own, chance[task, test, method]),
            None if method == baseline else paired(own, hits.get((task, test, baseline), {})),
        )
        for (task, test, method), own in hits.items()
    }


def edge_hit_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield how often rows look at the edges that the label is made of, beside chance."""
    found = edge_hits_of(report)
    if not found:
        return
    lines: list[tuple[Field, ...]] = []
    for task, test in dict.fromkeys((task, test) for task, test, _ in found):
        for method in report.methods:
            if (task, test, method) in found:
                measured, *differences = found[task, test, method]
                name = named_once(f"{task}, {test}", lines)
                texts = (name, method, scores.spread(AS, measured), *map(_difference, differences))
                lines.append(tuple(map(Field, texts)))
    yield Sheet(
        "edge hits",
        "Edges that count",
        ("task, test", "method", "hits in %", "over chance", f"over {report.table.baseline}"),
        tuple(lines),
        "Share of the edges that the label is made of among as many edges with the highest scores: "
        "those by which a row chooses its part of a graph, else the gradient of the predicted "
        "logit. Mean over graphs, then mean ± sample standard deviation over seeds; differences "
        "with their 95% bootstrap interval over seeds.",
        names=2,
    )


def _difference(found: Paired | None) -> str:
    if found is None:
        return ""
    mean = scores.amount(AS, found.difference, sign="+")
    return f"{mean} ({scores.ends(AS, found.low, found.high)})"


# ------------------------------------------------------------------------------- are promises kept?


def coverages_of(report: TableReport) -> dict[Place, dict[str, Spread]]:
    """Return by task and row what was promised and kept, each number over seeds.

    All are percent, of rows or of seeds, but the labels in a set.
    """
    found: dict[str, dict[Place, Spread]] = {}
    for name, unit in COVERED.items():
        found[name] = _over_seeds(report, partial(_kept, name, unit))
    return {place: {n: found[n][place] for n in COVERED} for place in found["asked"]}


def _kept(name: str, unit: float, record: Record) -> float | None:
    return unit * record.measures[COVERAGE][name] if COVERAGE in record.measures else None


def coverage_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield what sets cover, and which rows are called unknown, beside what was asked for."""
    found = coverages_of(report)
    if not found:
        return
    (asked,) = {one["asked"].mean for one in found.values()}
    lines: list[tuple[Field, ...]] = []
    for place in report.places:
        if place in found:
            texts = (named_once(place[0], lines), place[1], *_coverage(found[place]))
            lines.append(tuple(map(Field, texts)))
    yield Sheet(
        "coverage",
        f"Coverage, {asked:g}% asked for",
        (
            "task",
            "method",
            "sets hold the label, %",
            "labels in a set",
            "scores within",
            "known rows accepted, %",
            "accepted within",
            "unknown classes rejected, %",
        ),
        tuple(lines),
        "Thresholds are of validation rows, shares of test rows; mean ± sample standard deviation "
        "over seeds. Within: in how many seeds the share lies in the interval that has 95 of 100 "
        "seeds if validation and test rows are drawn alike. It is the scores that are held to it: "
        "a set has the likeliest class besides, so sets hold the label more often.",
        names=2,
    )


def _coverage(found: Mapping[str, Spread]) -> Iterator[str]:
    """Yield the texts of a row: shares, and how many seeds lie within the promise."""
    yield scores.spread(AS, found["of sets"])
    yield f"{found['labels in a set'].mean:.2f}"
    yield _seeds(found["scores are within"])
    yield scores.spread(AS, found["of known rows accepted"])
    yield _seeds(found["accepted is within"])
    yield scores.spread(AS, found["of strange rows rejected"])


def _seeds(found: Spread) -> str:
    return f"{found.mean * found.count / 100:.0f} of {found.count}"
