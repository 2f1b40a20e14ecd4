"""Rows of a suite by their ranks over tasks, as Demšar (2006) compares classifiers."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from hma.extras import needed
from hma.metrics import METRICS
from hma.paper.report.scores import holm, settled, wilcoxon
from hma.paper.report.table_report import Entry, Field, Sheet, TableReport
from hma.report.numbers import probability
from hma.report.statistics import CHANCE
from hma.report.svg import Scale, picture, tag

WIDTH, LEFT, RIGHT = 920.0, 260.0, 660.0
STEP = 24.0
INK, SOFT = "var(--ink)", "var(--soft)"


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A row of a suite over its tasks.

    Args:
        rank: Mean over tasks, 1 for the best.
        ahead, behind: Tasks on which the first row is ahead of this one and behind it.
        p: Of Wilcoxon's signed-rank test of the first row against this one over tasks.
        p_holm: Corrected after Holm for the rows.
        harmed: Tasks on which it is behind the baseline by more than one standard error.
    """

    rank: float
    ahead: int | None
    behind: int | None
    p: float | None
    p_holm: float | None
    harmed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The rows of a suite, the best mean rank first.

    Args:
        first: The row that the others are compared with.
        baseline: The row that none should fall behind on any task.
        tasks: Those that all rows were measured on.
        critical: How far mean ranks must lie apart by Nemenyi's test at 0.05.
        rows: By name.
    """

    first: str
    baseline: str
    tasks: tuple[str, ...]
    critical: float
    rows: Mapping[str, Ranked]


def ranks_of(report: TableReport) -> Ranks | None:
    """Return the ranks of rows over the tasks that all of them were measured on.

    Rows without any record are left out. None for a table that ranks nothing, and with fewer than
    two rows or two such tasks.
    """
    table, entries = report.table, report.entries
    first, baseline = table.ranked, table.baseline
    measured = {method for (_, method), entry in entries.items() if entry.scores}
    rows = [row for row in report.methods if row in measured]
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


def rank_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield every row with its mean rank, and the first one against it."""
    ranks = ranks_of(report)
    if ranks is None:
        return
    columns = ("method", "mean rank", f"{ranks.first} ahead", "behind", "p", "p (Holm)")
    lines = []
    for row, one in ranks.rows.items():
        counts = ["" if count is None else str(count) for count in (one.ahead, one.behind)]
        chances = ["" if p is None else probability(p) for p in (one.p, one.p_holm)]
        texts = [f"{one.rank:.2f}", *counts, *chances, ", ".join(one.harmed)]
        lines.append((Field(row), *map(Field, texts)))
    note = (
        f"Ranks of mean scores over {len(ranks.tasks)} tasks that all rows were measured on, 1 for "
        f"the best. {ranks.first} against each row: on how many tasks it is ahead and behind, "
        "Wilcoxon signed-rank p over tasks, not corrected and corrected after Holm. Last: tasks on "
        f"which a row is behind {ranks.baseline} by more than one standard error over the seeds. "
        f"By Nemenyi's test mean ranks differ if they are {ranks.critical:.2f} apart."
    )
    if missing := [row for row in report.methods if row not in ranks.rows]:
        note += f" Not ranked, for want of any record: {', '.join(missing)}."
    title = "Mean ranks over tasks"
    yield Sheet("ranks", title, (*columns, f"behind {ranks.baseline}"), tuple(lines), note)


def rank_chart(report: TableReport, ranks: Ranks) -> Markup:
    """Return mean ranks on a line, the best at the left, bars over rows that are not told apart."""
    names = list(ranks.rows)
    half = (len(names) + 1) // 2
    across = Scale(1, len(names), LEFT, RIGHT)
    bars = list(_bars(ranks))
    base = 62.0
    parts = [_line(LEFT, RIGHT, base)]
    for place in range(1, len(names) + 1):
        x = across(place)
        parts.append(tag("line", x1=x, x2=x, y1=base - 5, y2=base, stroke=INK))
        parts.append(tag("text", str(place), x=x, y=base - 9, class_="tick middle"))
    end = across(1 + min(ranks.critical, len(names) - 1))
    parts.append(_line(LEFT, end, 18.0))
    text = f"critical difference {ranks.critical:.2f}"
    parts.append(tag("text", text, x=LEFT, y=12, class_="axis"))
    for level, (low, high) in enumerate(bars):
        parts.append(_line(across(low) - 3, across(high) + 3, base + 8 + 9 * level, width=4))
    top = base + 14 + 9 * len(bars)
    for number, name in enumerate(names):
        left = number < half
        row = number if left else len(names) - 1 - number
        parts += _name(name, ranks.rows[name].rank, across, base, top + STEP * row, left=left)
    height = top + STEP * half + 8
    return picture(WIDTH, height, f"{report.table.title}: mean ranks over tasks", *parts)


def _line(start: float, end: float, y: float, width: int = 1) -> Markup:
    return tag("line", x1=start, x2=end, y1=y, y2=y, stroke=INK, stroke_width=width)


def _name(
    name: str, rank: float, across: Scale, base: float, y: float, *, left: bool
) -> Iterator[Markup]:
    x, end = across(rank), LEFT - 30 if left else RIGHT + 30
    yield tag("path", d=f"M{x:.1f} {base:g}V{y:.1f}H{end:g}", fill="none", stroke=SOFT)
    shift, kind = (-6, "axis end") if left else (6, "axis")
    yield tag("text", f"{name} {rank:.2f}", x=end + shift, y=y + 4, class_=kind)


def _bars(ranks: Ranks) -> Iterator[tuple[float, float]]:
    """Yield the ends of the longest stretches of ranks within the critical difference."""
    values = [one.rank for one in ranks.rows.values()]
    reached = 0
    for start, low in enumerate(values):
        stop = max(place for place, value in enumerate(values) if value - low < ranks.critical)
        if stop > max(start, reached):
            yield low, values[stop]
        reached = max(reached, stop)
