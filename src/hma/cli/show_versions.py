"""Versions of a memory in the terminal."""

from collections.abc import Sequence

from rich.table import Table

from hma.cli.terminal import Terminal
from hma.metrics import METRICS
from hma.report.numbers import MISSING, counted
from hma.runs.version import Score, Version


def tell_version(terminal: Terminal, version: Version) -> None:
    """Say what a change did: rows, classes, and scores before and after."""
    terminal.say(f"version {version.number}: {what_was_done(version)}")
    terminal.say(f"the memory now holds {counted(version.rows, 'row')}")
    if not version.scores:
        return
    table = Table()
    for name in ("rows", "count", "metric", "before", "after", "how"):
        numeric = name in ("count", "before", "after")
        table.add_column(name, justify="right" if numeric else "left")
    for score in version.scores:
        table.add_row(score.rows, str(score.count), *_numbers(score), score.how)
    terminal.print(table)


def what_was_done(version: Version) -> str:
    """Say in a line what made a version."""
    if version.verb == "restore":
        return f"version {version.restored} answers again"
    if version.verb == "forget":
        return f"forgot {counted(version.forgotten, 'row')}: {version.source}"
    new = f", new: {', '.join(version.classes)}" if version.classes else ""
    return f"remembered {counted(version.added, 'row')} of {version.source}{new}"


def history_table(versions: Sequence[Version], rows_at_first: int) -> Table:
    """Return a line for each version, the one in use marked."""
    table = Table(title="Versions of the memory; the last one answers")
    for name in ("version", "time", "rows", "validation", "what"):
        table.add_column(name, justify="right" if name in ("version", "rows") else "left")
    table.add_row("0", "", str(rows_at_first), "", "what training left")
    for version in versions:
        note = f" ({version.note})" if version.note else ""
        first = version.scores[0] if version.scores else None
        moved = "" if first is None or first.before is None else " → ".join(_numbers(first)[1:])
        table.add_row(
            str(version.number),
            version.time.replace("T", " ").removesuffix("+00:00"),
            str(version.rows),
            moved,
            what_was_done(version) + note,
        )
    return table


def _numbers(score: Score) -> tuple[str, str, str]:
    metric = METRICS.get(score.metric)
    title = score.metric if metric is None else metric.title
    before, after = (
        MISSING if value is None else f"{value:.4f}" for value in (score.before, score.after)
    )
    return title, before, after
