"""Records of whole runs: every candidate a row of its own, and the deployed model against them.

Such a record has in ``measures["candidates"]`` what each candidate came to, see
:mod:`hma.runs.whole_record`; the scores of the record itself are those of the deployed model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from hma.metrics import METRICS
from hma.paper.table import Cell, Table
from hma.report.table.pairing import settled, spread_of
from hma.report.table.table_report import Deployed, Spread
from hma.training import Record

CANDIDATES = "candidates"
Candidates = Mapping[str, Mapping[str, Any]]
"""Name -> title, simple, share, validation_loss, seconds, scores, errors, difference_errors."""


@dataclass(frozen=True)
class Spreads:
    """A table with a row for each candidate beside those it has, its cells and their records."""

    table: Table
    cells: tuple[Cell, ...]
    records: Mapping[Cell, Record]


def with_candidates(table: Table, cells: Sequence[Cell], records: Mapping[Cell, Record]) -> Spreads:
    """Return the table as if every candidate of its records had been measured by itself."""
    titles = {
        (cell.method, name): str(one["title"])
        for cell, record in records.items()
        for name, one in candidates_of(record).items()
    }
    rows = dict(table.rows)
    found = dict(records)
    for (method, name), title in titles.items():
        rows[name] = replace(table.rows[method], what=title)
        for cell, record in records.items():
            one = candidates_of(record).get(name) if cell.method == method else None
            if one is not None:
                found[cell._replace(method=name)] = _alone(record, one)
    beside = [
        cell._replace(method=name)
        for cell in cells
        for method, name in titles
        if cell.method == method and _has(name, cell, records)
    ]
    return Spreads(replace(table, rows=rows), (*cells, *beside), found)


def candidates_of(record: Record) -> Candidates:
    """Return the candidates of a record; none of an ordinary one."""
    found: Candidates = record.measures.get(CANDIDATES, {})
    return found


def _has(name: str, cell: Cell, records: Mapping[Cell, Record]) -> bool:
    """Tell whether a task has such a candidate with any seed."""
    return any(
        other._replace(seed=cell.seed) == cell and name in candidates_of(record)
        for other, record in records.items()
    )


def _alone(record: Record, one: Mapping[str, Any]) -> Record:
    """Return the record of a candidate, as far as tables look at it."""
    context = next(iter(record.setup["method"]["contexts"]))
    return replace(
        record,
        tests={"test": {context: dict(one["scores"])}},
        seconds=float(one["seconds"]),
        measures={},
    )


def deployments(records: Mapping[Cell, Record]) -> dict[str, dict[str, Deployed]]:
    """Return what is deployed against its candidates: metric -> task -> comparison."""
    by_task: dict[str, list[Record]] = {}
    for cell, record in records.items():
        if candidates_of(record):
            by_task.setdefault(cell.task, []).append(record)
    found: dict[str, dict[str, Deployed]] = {}
    for task, held in by_task.items():
        for metric in next(iter(candidates_of(held[0]).values()))["scores"]:
            found.setdefault(metric, {})[task] = _deployed(metric, held)
    return found


def _deployed(metric: str, records: Sequence[Record]) -> Deployed:
    names = dict.fromkeys(name for record in records for name in candidates_of(record))
    whole = [n for n in names if all(n in candidates_of(record) for record in records)]
    scale, sign = METRICS[metric].scale, 1 if METRICS[metric].larger_is_better else -1
    ours = [scale * float(record.measures["scores"][metric]) for record in records]
    theirs = {
        name: [scale * float(candidates_of(r)[name]["scores"][metric]) for r in records]
        for name in whole
    }
    simple = [name for name in whole if candidates_of(records[0])[name]["simple"]]
    best = max(simple, key=lambda name: sign * fmean(theirs[name]), default=None)
    apart = [a - b for a, b in zip(ours, theirs[best], strict=True)] if best else []
    errors = [
        scale * float(candidates_of(record)[best]["difference_errors"][metric])
        for record in records
        if best
    ]
    difference = spread_of(apart)
    return Deployed(
        measured=_present(ours),
        candidates={name: _present(scores) for name, scores in theirs.items()},
        shares={n: settled(fmean(candidates_of(r)[n]["share"] for r in records)) for n in whole},
        best_simple=best,
        difference=difference.mean if difference else None,
        seeds_error=_over_seeds(difference),
        rows_error=settled(math.hypot(*errors) / len(errors)) if errors else None,
        sign=sign,
    )


def _present(scores: Sequence[float]) -> Spread:
    found = spread_of(scores)
    assert found is not None, "a task is here because it has a record"
    return found


def _over_seeds(difference: Spread | None) -> float | None:
    if difference is None or difference.std is None:
        return None
    return settled(difference.std / math.sqrt(difference.count))
