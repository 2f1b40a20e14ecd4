"""Rows of a suite by their ranks over tasks, as Demšar (2006) compares classifiers."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from hma.extras import needed
from hma.metrics import METRICS
from hma.paper.table import Table
from hma.report.statistics import CHANCE
from hma.report.table.pairing import holm, settled, wilcoxon
from hma.report.table.table_report import Entry, Ranked, Ranks


def ranks_of(
    table: Table, entries: Mapping[tuple[str, str], Entry], methods: Sequence[str]
) -> Ranks | None:
    """Return the ranks of rows over the tasks that all of them were measured on.

    Args:
        table: Says whether rows are ranked, and with which one the others are compared.
        entries: By task and row.
        methods: The rows that were asked for.

    Returns:
        None for a table that ranks nothing, and with fewer than two rows or two such tasks.
    """
    first, baseline = table.ranked, table.baseline
    rows = [row for row in methods if any(method == row for _, method in entries)]
    sign = 1 if METRICS[table.metric].larger_is_better else -1
    tasks = [
        task
        for task in dict.fromkeys(task for task, _ in entries)
        if all(_complete(entries.get((task, row))) for row in rows)
    ]
    if first is None or first not in rows or len(rows) < 2 or len(tasks) < 2:
        return None
    scores = {task: {row: sign * _mean(entries[task, row]) for row in rows} for task in tasks}
    placed = {task: mean_ranks(scores[task]) for task in tasks}
    others = [row for row in rows if row != first]
    apart = {row: [settled(scores[t][first] - scores[t][row]) for t in tasks] for row in others}
    p = {row: wilcoxon(apart[row]) for row in others}
    corrected = dict(zip(others, holm(list(p.values())), strict=True))
    return Ranks(
        first=first,
        baseline=baseline,
        tasks=tuple(tasks),
        critical=critical_difference(len(rows), len(tasks)),
        rows={
            row: Ranked(
                rank=settled(fmean(placed[task][row] for task in tasks)),
                ahead=sum(d > 0 for d in apart[row]) if row != first else None,
                behind=sum(d < 0 for d in apart[row]) if row != first else None,
                p=p.get(row),
                p_holm=corrected.get(row),
                harmed=tuple(t for t in tasks if _harmed(entries, t, row, baseline, sign)),
            )
            for row in sorted(rows, key=lambda row: fmean(placed[task][row] for task in tasks))
        },
    )


def mean_ranks(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the rank of each row, 1 for the largest score; equal ones share the mean of theirs.

    Example:
        >>> mean_ranks({"a": 3.0, "b": 1.0, "c": 3.0})
        {'a': 1.5, 'b': 3.0, 'c': 1.5}
    """
    values = list(scores.values())
    return {
        row: 1 + sum(v > value for v in values) + (sum(v == value for v in values) - 1) / 2
        for row, value in scores.items()
    }


def critical_difference(rows: int, tasks: int) -> float:
    r"""Return how far mean ranks must lie apart by Nemenyi's test at 0.05.

    .. math:: q_{0.05} \sqrt{k (k + 1) / (6 N)}

    Example:
        >>> round(critical_difference(rows=4, tasks=14), 2)  # Demšar (2006), section 3.2.4
        1.25
    """
    studentized = needed("scipy.stats", "the report").studentized_range
    q = float(studentized.ppf(1 - CHANCE, rows, math.inf)) / math.sqrt(2)
    return round(q * math.sqrt(rows * (rows + 1) / (6 * tasks)), 4)


def _complete(entry: Entry | None) -> bool:
    """Tell whether every seed of a row has a defined score on a task."""
    return entry is not None and len(entry.scores) == entry.wanted and math.isfinite(_mean(entry))


def _mean(entry: Entry) -> float:
    return settled(fmean(entry.scores.values()))


def _harmed(
    entries: Mapping[tuple[str, str], Entry], task: str, row: str, baseline: str, sign: int
) -> bool:
    """Tell whether a row is behind the baseline by more than a standard error, seed by seed."""
    base = entries.get((task, baseline))
    if base is None or row == baseline:
        return False
    own = entries[task, row].scores
    apart = [sign * (own[seed] - base.scores[seed]) for seed in own if seed in base.scores]
    if len(apart) < 2:
        return False
    mean = fmean(apart)
    variance = sum((value - mean) ** 2 for value in apart) / (len(apart) - 1)
    return settled(mean + math.sqrt(variance / len(apart))) < 0
