"""Records of whole runs: every candidate a row of its own, and the deployed model against them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from hma.metrics import METRICS
from hma.paper.report import scores
from hma.paper.report.scores import Spread, settled, spread_of
from hma.paper.report.table_report import Field, Sheet, TableReport
from hma.paper.table import Cell, Table
from hma.report.numbers import MISSING, percent
from hma.training import Record

CANDIDATES = "candidates"
Candidates = Mapping[str, Mapping[str, Any]]
"""Name -> title, simple, share, validation_loss, seconds, scores, errors, difference_errors."""
YES_NO = {True: "yes", False: "no", None: MISSING}


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


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """What whole runs deploy on a task, against their candidates, in one metric.

    Args:
        measured: The deployed model over seeds.
        candidates: The same of each candidate that all seeds have.
        shares: What each of them has of the deployed model, mean over seeds.
        best_simple: The simple candidate with the best mean; None without one.
        difference: Deployed minus best simple, mean over seeds.
        seeds_error: Standard error of that mean over the seeds, paired; None of a single one.
        rows_error: The same over the test rows of all seeds, paired row by row.
        sign: 1 where a larger score is better, else -1.
    """

    measured: Spread
    candidates: Mapping[str, Spread]
    shares: Mapping[str, float]
    best_simple: str | None
    difference: float | None
    seeds_error: float | None
    rows_error: float | None
    sign: int

    def holds(self, error: float | None) -> bool | None:
        """Tell whether the deployed model is within one error of the best baseline, or better.

        None where there is nothing to compare with, or no error is known and it is worse.
        """
        if self.difference is None:
            return None
        ahead = self.sign * self.difference
        if error is None:
            return True if ahead >= 0 else None
        return ahead + error >= 0


def deployments(report: TableReport) -> dict[str, dict[str, Deployed]]:
    """Return what is deployed against its candidates: metric -> task -> comparison."""
    by_task: dict[str, list[Record]] = {}
    for cell, record in report.held.items():
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


def candidate_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield for each metric the deployed model against the best baseline, then all candidates."""
    deployed = deployments(report)
    note = " ".join(
        [
            *(_found(metric, tasks) for metric, tasks in deployed.items()),
            "Difference: deployed minus the simple baseline with the best mean on the test rows, "
            "which only they could choose. Standard errors are those of the difference, paired: "
            "over the seeds, and over the test rows of all seeds. Holds: within one of them, or "
            "better.",
        ]
    )
    for metric, tasks in deployed.items():
        yield _against_simple(report, metric, tasks, note)
    for metric, tasks in deployed.items():
        yield _every_candidate(report, metric, tasks)
    yield _shares(report, next(iter(deployed.values())))


def _found(metric: str, tasks: Mapping[str, Deployed]) -> str:
    """Return on how many tasks the deployed model holds, and where it does not by how much."""
    compared = {task: one for task, one in tasks.items() if one.best_simple is not None}
    by_rows = [task for task, one in compared.items() if one.holds(one.rows_error)]
    by_seeds = [task for task, one in compared.items() if one.holds(one.seeds_error)]
    missed = [
        f"{task} ({scores.amount(metric, one.difference, sign='+')}, standard error "
        f"{scores.amount(metric, one.rows_error)})"
        for task, one in compared.items()
        if task not in by_rows
    ]
    name = METRICS[metric].title
    text = (
        f"{name[0].upper()}{name[1:]}: within one standard error of the best simple baseline "
        f"or better on {len(by_rows)} of {len(compared)} by the test rows, {len(by_seeds)} by the "
        "seeds"
    )
    return f"{text}; not on {', '.join(missed)}." if missed else f"{text}."


def _against_simple(
    report: TableReport, metric: str, tasks: Mapping[str, Deployed], note: str
) -> Sheet:
    columns = (
        "task",
        "deployed",
        "best simple baseline",
        "difference",
        "error, seeds",
        "error, rows",
    )
    lines = []
    for task, one in _in_order(report, tasks).items():
        best = one.best_simple
        simple = scores.spread(metric, None if best is None else one.candidates[best])
        texts = [
            scores.amount(metric, one.difference, sign="+"),
            scores.amount(metric, one.seeds_error),
            scores.amount(metric, one.rows_error),
            _holds(one),
        ]
        named = Field(simple, () if best is None else (report.methods[best],))
        measured = Field(scores.spread(metric, one.measured))
        lines.append((Field(task), measured, named, *map(Field, texts)))
    title = f"Deployed against the best simple baseline, {scores.title(metric)}"
    return Sheet("overview", title, (*columns, "holds"), tuple(lines), note)


def _holds(one: Deployed) -> str:
    """Return whether the deployed model is within one error or better, and by which error."""
    rows, seeds = one.holds(one.rows_error), one.holds(one.seeds_error)
    if rows is None or seeds is None or rows == seeds:
        return YES_NO[rows]
    return "by rows" if rows else "by seeds"


def _every_candidate(report: TableReport, metric: str, tasks: Mapping[str, Deployed]) -> Sheet:
    names = _names(report, tasks)
    lines = []
    for task, one in _in_order(report, tasks).items():
        spreads = {"": one.measured, **one.candidates}
        best = max(one.sign * spread.mean for spread in spreads.values())
        fields = [
            Field(scores.spread(metric, spreads[name]), best=one.sign * spreads[name].mean == best)
            if name in spreads
            else Field("")
            for name in ("", *names)
        ]
        lines.append((Field(task), *fields))
    return Sheet(
        "candidates",
        f"Every candidate, {scores.title(metric)}",
        ("task", "deployed", *(report.methods[name] for name in names)),
        tuple(lines),
        "Mean ± sample standard deviation over seeds. Bold: the best mean of a task.",
    )


def _shares(report: TableReport, tasks: Mapping[str, Deployed]) -> Sheet:
    names = _names(report, tasks)
    lines = [
        (Field(task), *(Field(percent(one.shares[n], 0) if n in one.shares else "") for n in names))
        for task, one in _in_order(report, tasks).items()
    ]
    return Sheet(
        "candidates",
        "Shares of the deployed model",
        ("task", *(report.methods[name] for name in names)),
        tuple(lines),
        "As the validation rows decided them, mean over seeds.",
    )


def _names(report: TableReport, tasks: Mapping[str, Deployed]) -> list[str]:
    return [
        name for name in report.methods if any(name in one.candidates for one in tasks.values())
    ]


def _in_order(report: TableReport, tasks: Mapping[str, Deployed]) -> dict[str, Deployed]:
    return {task: tasks[task] for task in report.tasks if task in tasks}
