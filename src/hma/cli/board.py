"""How a run of a table looks in a terminal: what is done, what runs, what failed, what is left."""

import sys
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hma.cli.show import Terminal

if TYPE_CHECKING:
    from hma.paper.cells import Board, Ended, Moved
    from hma.paper.table import Cell

SIGNS = {"done": "done", "failed": "FAILED", "busy": "busy", "absent": "no data", "stopped": "kept"}


class LineBoard:
    """One line for each cell that ends, for logs and pipes."""

    def __init__(self, console: Terminal) -> None:
        self.console = console
        self.count = self.total = 0
        self.absent: set[str] = set()

    def begin(self, cells: int, waiting: int) -> None:
        """Say how much is done already."""
        self.total, self.count = cells, cells - waiting
        self.say(f"{cells} cells, {cells - waiting} done before, {waiting} to run")

    def started(self, cell: "Cell") -> None:
        """Say nothing."""

    def moved(self, event: "Moved") -> None:
        """Say nothing."""

    def ended(self, event: "Ended") -> None:
        """Say how the cell ended; that data is not there once for each task."""
        if event.end == "busy" or event.cell.task in self.absent:
            return
        if event.end == "absent":
            self.absent.add(event.cell.task)
            self.say(f"{SIGNS[event.end]}: {event.cell.table} {event.cell.task}")
            return
        self.count += event.end == "done"
        line = f"[{self.count}/{self.total}] {SIGNS[event.end]}: {event.cell}"
        self.say(f"{line}: {event.message}" if event.end == "failed" else line)

    def say(self, message: str) -> None:
        """Print a line."""
        self.console.say(message)

    def close(self) -> None:
        """Do nothing."""


class LiveBoard:
    """A bar for the table and one for each running cell, with the time that is left."""

    def __init__(self, console: Terminal) -> None:
        self.console = console
        self.failed = 0
        self.bars: dict[Cell, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
        )
        self.whole: Any = None

    def begin(self, cells: int, waiting: int) -> None:
        """Show the bar of the table."""
        self.whole = self.progress.add_task(
            "cells", total=cells, completed=cells - waiting, note="starting"
        )
        self.progress.start()

    def started(self, cell: "Cell") -> None:
        """Show a bar for the cell."""
        name = f"{cell.task}/{cell.method} {cell.seed}"
        self.bars[cell] = self.progress.add_task(name, total=None, note="steps")
        self._note()

    def moved(self, event: "Moved") -> None:
        """Move the cell's bar."""
        if event.cell in self.bars:
            bar = self.bars[event.cell]
            self.progress.update(bar, completed=event.steps, total=event.total)

    def ended(self, event: "Ended") -> None:
        """Take the cell's bar away; a failure stays on the screen."""
        if event.cell in self.bars:
            self.progress.remove_task(self.bars.pop(event.cell))
        if event.end == "done":
            self.progress.advance(self.whole)
        if event.end == "failed":
            self.failed += 1
            self.say(f"FAILED: {event.cell}: {event.message}")
        self._note()

    def _note(self) -> None:
        note = f"{len(self.bars)} running, {self.failed} failed"
        self.progress.update(self.whole, note=note)

    def say(self, message: str) -> None:
        """Print a line above the bars."""
        self.console.say(message)

    def close(self) -> None:
        """Take the bars away."""
        self.progress.stop()


def board_for_terminal() -> "Board":
    """Return bars where standard error is a terminal, lines elsewhere."""
    console = Terminal(stderr=True)
    return LiveBoard(console) if sys.stderr.isatty() else LineBoard(console)
