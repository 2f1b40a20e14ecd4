"""Is the memory read? What rows lose when the labels of their stored rows are permuted."""

from collections.abc import Mapping
from statistics import fmean

from hma.metrics import METRICS
from hma.paper.table import Cell
from hma.questions.audit import AUDIT, PERMUTED
from hma.report.table import scores
from hma.report.table.pairing import spread_of
from hma.report.table.sheet import Field, Sheet
from hma.report.table.table_report import Spread, TableReport
from hma.training import Record

READ = 3.0
"""Points that a memory loses at least that is said to be read."""


def permuted_of(records: Mapping[Cell, Record], metric: str) -> dict[tuple[str, str], Spread]:
    """Return what the score of a row changes by, by task and row, where that was measured."""
    changes: dict[tuple[str, str], list[float]] = {}
    for cell, record in records.items():
        audits = record.measures.get(AUDIT, {}).values()
        found = [audit["changes"].get(PERMUTED, {}).get(metric) for audit in audits]
        known = [one["change"] for one in found if one is not None and one["change"] is not None]
        if known:
            place = (cell.task, cell.method)
            changes.setdefault(place, []).append(METRICS[metric].scale * fmean(known))
    spreads = {place: spread_of(values) for place, values in changes.items()}
    return {place: found for place, found in spreads.items() if found is not None}


def permuted_sheet(report: TableReport) -> Sheet:
    """Return the changes of every row that has a memory, tasks down."""
    names = [name for name in report.methods if any(row == name for _, row in report.permuted)]
    tasks = [t for group in report.groups for t in group.tasks if (t, names[0]) in report.permuted]
    lines = [
        (Field(task), *(Field(_change(report, (task, name))) for name in names)) for task in tasks
    ]
    counts = [f"{name} on {sum(_loses(report, (task, name)) for task in tasks)}" for name in names]
    note = (
        f"Change of the score, mean over seeds, when the labels of the stored rows are permuted. "
        f"Tasks of {len(tasks)} on which at least {READ:g} points are lost: {', '.join(counts)}."
    )
    return Sheet("permuted", "Is the memory read?", ("task", *names), tuple(lines), note)


def _change(report: TableReport, place: tuple[str, str]) -> str:
    found = report.permuted.get(place)
    return scores.amount(report.metric, None if found is None else found.mean, sign="+")


def _loses(report: TableReport, place: tuple[str, str]) -> bool:
    found = report.permuted.get(place)
    return found is not None and found.mean <= -READ
