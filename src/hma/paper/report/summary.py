"""From the definition of a table and its records to the numbers of its report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean

from hma.metrics import METRICS, Metric
from hma.paper.report.candidates import with_candidates
from hma.paper.report.pictures import scenes_of
from hma.paper.report.scores import Spread, contexts_of, holm, paired, score, settled, spread_of
from hma.paper.report.step_costs import step_cost_scenes, step_costs_of
from hma.paper.report.table_report import Average, Cost, Entry, Group, TableReport
from hma.paper.results import Failure
from hma.paper.table import Cell, Row, Table
from hma.training import Record

Entries = dict[tuple[str, str], Entry]


def summarise(
    table: Table,
    budget: str,
    records: Mapping[Cell, Record],
    failures: Mapping[Cell, Failure],
    *,
    only: str | None = None,
    seeds: int | None = None,
) -> TableReport:
    """Return what is measured of a table under a budget, and what is missing.

    The order of records and failures does not matter, and nothing else is looked at.

    Args:
        table: The table.
        budget: Name of one of its budgets.
        records: What is measured.
        failures: What failed at the last try; a cell with a record has not failed.
        only, seeds: Which part of the table, as :meth:`hma.paper.table.Table.cells` takes them.
    """
    cells = table.cells(budget, only, seeds)
    held = {cell: records[cell] for cell in cells if cell in records}
    failed = {cell: failures[cell] for cell in cells if cell in failures and cell not in held}
    shown = with_candidates(table, cells, held)
    costs = step_costs_of(table, held)
    scored = {cell: one for cell, one in shown.records.items() if cell.task not in costs}
    entries = _entries(shown.table, shown.cells, scored, failed)
    methods = [n for n in shown.table.rows if any(cell.method == n for cell in shown.cells)]
    tasks = [name for name in table.problems if any(cell.task == name for cell in cells)]
    return TableReport(
        table=shown.table,
        budget=budget,
        seeds=tuple(sorted({cell.seed for cell in cells})),
        methods={name: _what(shown.table.rows[name]) for name in methods},
        groups=_groups(table, tasks, methods, entries),
        entries=entries,
        costs={name: _cost(name, shown.cells, shown.records, failed) for name in methods},
        cells=len(cells),
        held=held,
        retired=sum(bool(table.rows[c.method].retired) for c in cells if c not in held),
        failures={str(cell): failure for cell, failure in sorted(failed.items())},
        command=_command(table, budget, only, seeds),
        outside=_outside(table, tasks, methods),
        warnings=tuple(_warnings(table, budget, held)),
        scenes=(
            *scenes_of(table, held, entries),
            *step_cost_scenes(costs),
        ),
    )


def _what(row: Row) -> str:
    """Return what a row is, and whether it can still be measured."""
    if not row.retired:
        return row.what
    return f"{row.what} (measured at commit {row.retired}, no longer part of hma)"


def _entries(
    table: Table,
    cells: Sequence[Cell],
    held: Mapping[Cell, Record],
    failed: Mapping[Cell, Failure],
) -> Entries:
    found: Entries = {}
    for task, method in dict.fromkeys((cell.task, cell.method) for cell in cells):
        here = [cell for cell in cells if (cell.task, cell.method) == (task, method)]
        published = table.published.get(method, {}).get(task)
        found[task, method] = _entry(
            table.metric,
            len(here),
            {cell.seed: held[cell] for cell in here if cell in held},
            published,
            tuple(cell.seed for cell in here if cell in failed),
        )
    for task in dict.fromkeys(cell.task for cell in cells):
        _compare(found, task, table.baseline)
        _mark_best(found, task, METRICS[table.metric])
    return found


def _entry(
    metric: str,
    wanted: int,
    records: Mapping[int, Record],
    published: tuple[float, float] | None,
    failed: tuple[int, ...],
) -> Entry:
    own = {seed: contexts_of(record)[0] for seed, record in records.items()}
    scores = {seed: score(record, metric, own[seed]) for seed, record in records.items()}
    measured = spread_of(list(scores.values()))
    names = dict.fromkeys(c for record in records.values() for c in contexts_of(record))
    splits = dict.fromkeys(split for record in records.values() for split in record.tests)
    return Entry(
        wanted=wanted,
        scores=scores,
        measured=measured,
        published=published,
        difference=settled(measured.mean - published[0]) if measured and published else None,
        paired=None,
        context=next(iter(own.values()), None),
        contexts={
            name: _spread(
                score(record, metric, name)
                for record in records.values()
                if name in contexts_of(record)
            )
            for name in names
        },
        splits={
            name: _spread(
                score(record, metric, own[seed], name)
                for seed, record in records.items()
                if name in record.tests
            )
            for name in splits
        },
        failed=failed,
        best=False,
    )


def _spread(scores: Iterable[float]) -> Spread:
    found = spread_of(list(scores))
    assert found is not None, "a context or split is named by the records that have it"
    return found


def _compare(entries: Entries, task: str, baseline: str) -> None:
    """Set every row of a task against the baseline, and correct for how many there are."""
    base = entries.get((task, baseline))
    if base is None:
        return
    found = {
        key: pair
        for key, entry in entries.items()
        if key[0] == task and key[1] != baseline
        if (pair := paired(entry.scores, base.scores)) is not None
    }
    corrected = holm([pair.p for pair in found.values()])
    for (key, pair), p in zip(found.items(), corrected, strict=True):
        entries[key] = replace(entries[key], paired=replace(pair, p_holm=p))


def _mark_best(entries: Entries, task: str, metric: Metric) -> None:
    means = {
        key: entry.measured.mean
        for key, entry in entries.items()
        if key[0] == task and entry.measured is not None and isfinite(entry.measured.mean)
    }
    best = max if metric.larger_is_better else min
    for key, mean in means.items():
        if len(means) > 1 and mean == best(means.values()):
            entries[key] = replace(entries[key], best=True)


def _groups(
    table: Table, tasks: Sequence[str], methods: Sequence[str], entries: Entries
) -> tuple[Group, ...]:
    """Return the curves of a figure, and what is on none of them, as far as asked for."""
    held = {
        name: tuple(task for task in curve if task in tasks) for name, curve in table.curves.items()
    }
    rest = tuple(task for task in tasks if not any(task in curve for curve in held.values()))
    if rest:
        held[""] = rest
    return tuple(
        Group(
            name=name,
            tasks=members,
            labels=tuple(task.removeprefix(f"{name}-") for task in members),
            averages={}
            if len(members) == 1
            else {method: _average(method, members, entries) for method in methods},
        )
        for name, members in held.items()
        if members
    )


def _average(method: str, tasks: Sequence[str], entries: Entries) -> Average:
    here = [entries.get((task, method)) for task in tasks]
    there = [entry for entry in here if entry is not None]
    whole = len(there) == len(tasks)
    measured, published = None, None
    if whole and all(len(entry.scores) == entry.wanted for entry in there):
        by_seed = [fmean(entry.scores[seed] for entry in there) for seed in there[0].scores]
        measured = spread_of(by_seed)
    printed = [entry.published[0] for entry in there if entry.published is not None]
    if len(printed) == len(tasks):
        published = settled(fmean(printed))
    difference = None
    if measured is not None and published is not None:
        difference = settled(measured.mean - published)
    return Average(measured, published, difference)


def _cost(
    method: str,
    cells: Sequence[Cell],
    held: Mapping[Cell, Record],
    failed: Mapping[Cell, Failure],
) -> Cost:
    records = [held[cell] for cell in cells if cell.method == method and cell in held]
    return Cost(
        records=len(records),
        wanted=sum(cell.method == method for cell in cells),
        failed=sum(cell.method == method for cell in failed),
        seconds=settled(fmean(record.seconds for record in records)) if records else None,
        peak_memory_bytes=max((record.peak_memory_bytes for record in records), default=None),
    )


def _command(table: Table, budget: str, only: str | None, seeds: int | None) -> str:
    parts = ["hma run", table.key, "--budget", budget]
    if only is not None:
        parts += ["--only", f"'{only}'"]
    if seeds is not None:
        parts += ["--seeds", str(seeds)]
    return " ".join(parts)


def _outside(table: Table, tasks: Sequence[str], methods: Sequence[str]) -> tuple[str, ...]:
    left = [name for name in table.problems if name not in tasks]
    return (*left, *(name for name in table.rows if name not in methods))


def _warnings(table: Table, budget: str, held: Mapping[Cell, Record]) -> Iterable[str]:
    """Yield where numbers mean nothing, or rows were not measured on the same data."""
    if budget == "smoke":
        yield "Budget smoke only shows that every cell runs: these numbers mean nothing."
    seen: dict[tuple[str, int], set[str]] = {}
    for cell, record in held.items():
        if table.rows[cell.method].task is None:  # others have a view of their own, and say so
            seen.setdefault((cell.task, cell.seed), set()).add(record.data_fingerprint)
    for (task, seed), fingerprints in sorted(seen.items()):
        if len(fingerprints) > 1:
            yield f"{task}, seed {seed}: not all rows were measured on the same data"
