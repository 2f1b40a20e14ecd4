"""Versions of a memory in the terminal."""

from collections.abc import Sequence

from rich.table import Table

from hma.cli.terminal import Terminal
from hma.report.numbers import counted
from hma.runs.card import score_numbers, what_was_done, when
from hma.runs.memory_versions import Version


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
        table.add_row(score.rows, str(score.count), *score_numbers(score), score.how)
    terminal.print(table)


def history_table(versions: Sequence[Version], rows_at_first: int) -> Table:
    """Return a line for each version, the one in use marked."""
    table = Table(title="Versions of the memory; the last one answers")
    for name in ("version", "time", "rows", "validation", "what"):
        table.add_column(name, justify="right" if name in ("version", "rows") else "left")
    table.add_row("0", "", str(rows_at_first), "", "what training left")
    for version in versions:
        first = version.scores[0] if version.scores else None
        moved = (
            "" if first is None or first.before is None else " → ".join(score_numbers(first)[1:])
        )
        table.add_row(
            str(version.number),
            when(version),
            str(version.rows),
            moved,
            what_was_done(version),
        )
    return table
