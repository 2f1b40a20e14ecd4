"""Hand out the cells that are missing until none is left."""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol

from hma.tables.results import Results
from hma.tables.table import Cell
from hma.training.interruption import StopRequests

LISTEN_SECONDS = 0.2
ASK_AGAIN_SECONDS = 1.0
"""How long a cell that another runner has is left alone."""


End = Literal["done", "failed", "busy", "absent", "stopped"]
"""How a cell ended: 'busy' if another process has it, 'absent' if its data is not there."""


@dataclass(frozen=True)
class Moved:
    """A cell got on."""

    cell: Cell
    steps: int
    total: int


@dataclass(frozen=True)
class Ended:
    """A cell is no longer running."""

    cell: Cell
    end: End
    message: str = ""


class Pool(Protocol):
    """Runs several cells at a time."""

    size: int
    """Most cells at a time."""

    def start(self, cell: Cell) -> None:
        """Begin with a cell."""

    def events(self, seconds: float) -> list[Moved | Ended]:
        """Return what has happened, after at most so many seconds."""

    def stop(self) -> None:
        """Ask all running cells to write a checkpoint and end."""

    def close(self) -> None:
        """Give everything back; running cells end."""


@dataclass
class Outcome:
    """What a run came to.

    Args:
        done: Cells finished by this run.
        elsewhere: Cells that another runner finished meanwhile.
        failed: Cells that failed, with their errors.
        absent: Tasks whose data is not there, with what to do.
        stopped: The signal that ended the run early, if one did.
    """

    done: list[Cell] = field(default_factory=list)
    elsewhere: list[Cell] = field(default_factory=list)
    failed: dict[Cell, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    stopped: int | None = None


class Board(Protocol):
    """Shows how a run goes."""

    def begin(self, cells: int, waiting: int) -> None:
        """Start: of ``cells`` in all, ``waiting`` are to be run."""

    def started(self, cell: Cell) -> None:
        """Show that a cell is being worked on."""

    def moved(self, event: Moved) -> None:
        """Show how far a running cell is."""

    def ended(self, event: Ended) -> None:
        """Show that a cell is no longer running."""

    def say(self, message: str) -> None:
        """Tell something that stays on the screen."""

    def close(self) -> None:
        """Leave the screen as it is."""


def run(
    cells: Iterable[Cell],
    results: Results,
    pool: Pool,
    board: Board,
    *,
    absent: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run every cell that has no record yet; cells that failed before are tried again.

    Ctrl-C and SIGTERM let the running cells write a checkpoint and end.

    Args:
        cells: What is wanted, in the order to run it.
        results: Where records are.
        pool: Runs them.
        board: Shows how it goes.
        absent: Tasks whose data is known not to be there, with what to do.
    """
    wanted = list(cells)
    missing = [cell for cell in wanted if results.state(cell) != "done"]
    board.begin(len(wanted), len(missing))
    try:
        with StopRequests() as stop:
            loop = _Loop(missing, results, pool, board, stop)
            loop.outcome.absent.update(absent)
            return loop.complete()
    finally:
        pool.close()
        board.close()


class _Loop:
    def __init__(
        self, missing: list[Cell], results: Results, pool: Pool, board: Board, stop: StopRequests
    ) -> None:
        self.results, self.pool, self.board, self.stop = results, pool, board, stop
        self.waiting = deque(missing)
        self.busy: deque[tuple[float, Cell]] = deque()
        self.running: set[Cell] = set()
        self.outcome = Outcome()

    def complete(self) -> Outcome:
        """Go on until nothing runs and nothing waits."""
        while self.running or self.waiting or self.busy:
            if self.stop.received is not None and self.outcome.stopped is None:
                self.outcome.stopped = self.stop.received
                self.board.say("stopping: running cells write a checkpoint")
                self.waiting.clear()
                self.busy.clear()
                self.pool.stop()
            self._ask_again()
            while self.waiting and len(self.running) < self.pool.size and not self.stop.received:
                self._start(self.waiting.popleft())
            if not self.running and self.busy:
                time.sleep(LISTEN_SECONDS)
            for event in self.pool.events(LISTEN_SECONDS):
                if isinstance(event, Ended):
                    self._ended(event)
                else:
                    self.board.moved(event)
        return self.outcome

    def _start(self, cell: Cell) -> None:
        if self.results.path(cell).exists():  # another runner was faster
            self.outcome.elsewhere.append(cell)
            self.board.ended(Ended(cell, "done"))
        elif cell.task in self.outcome.absent:
            self.board.ended(Ended(cell, "absent"))
        else:
            self.stop.idle = not self.running  # the first start takes seconds
            self.pool.start(cell)
            self.stop.idle = False
            self.running.add(cell)
            self.board.started(cell)

    def _ask_again(self) -> None:
        while self.busy and self.busy[0][0] <= time.monotonic():
            _, cell = self.busy.popleft()
            self.waiting.append(cell)

    def _ended(self, event: Ended) -> None:
        cell = event.cell
        self.running.discard(cell)
        if event.end == "done":
            self.outcome.done.append(cell)
        elif event.end == "failed":
            self.outcome.failed[cell] = event.message
        elif event.end == "absent":
            self.outcome.absent[cell.task] = event.message
        elif event.end == "busy" and self.outcome.stopped is None:
            self.busy.append((time.monotonic() + ASK_AGAIN_SECONDS, cell))
        self.board.ended(event)
