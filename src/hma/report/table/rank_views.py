"""Ranks of rows over tasks, as a sheet and as a critical-difference drawing."""

from collections.abc import Iterator

from markupsafe import Markup

from hma.report.numbers import probability
from hma.report.svg import Scale, picture, tag
from hma.report.table.sheet import Field, Sheet
from hma.report.table.table_report import Ranks, TableReport

WIDTH, LEFT, RIGHT = 920.0, 260.0, 660.0
STEP = 24.0
INK, SOFT = "var(--ink)", "var(--soft)"


def rank_sheet(ranks: Ranks) -> Sheet:
    """Return every row with its mean rank, and the first one against it."""
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
    title = "Mean ranks over tasks"
    return Sheet("ranks", title, (*columns, f"behind {ranks.baseline}"), tuple(lines), note)


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
    return picture(WIDTH, height, f"{report.title}: mean ranks over tasks", *parts)


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
