"""Cells in processes of this machine: each in one of its own, with one torch thread."""

import multiprocessing
import signal
import sys
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from hma.errors import UserError
from hma.paper.cells import Ended, Moved
from hma.paper.results import Failure, Results
from hma.paper.table import Cell

IMPORTED_ONCE = ["hma.paper.cell_process"]
"""What the server imports that processes are forked from."""
IMPORTED_IF_USED = ("torch_geometric", "timm", "transformers")
"""Packages that take seconds; the server imports those that the starter has imported."""


class Processes:
    """Run up to ``size`` cells at a time.

    A process that dies, of whatever, costs its cell some steps and the others nothing. Processes
    end with the one that started them, even if that is killed outright.

    Args:
        size: Number of processes.
        file: The experiment file.
        results: Where records go.
    """

    def __init__(self, size: int, file: Path, results: Results) -> None:
        if size < 1:
            raise UserError(f"workers must be at least 1, got {size}")
        self.size = size
        self._file, self._results = file, results
        self._context = multiprocessing.get_context("forkserver")
        self._running: dict[Cell, _Running] = {}
        self._asked_to_end = False

    def start(self, cell: Cell) -> None:
        """Begin with a cell, in a new process."""
        used = [name for name in IMPORTED_IF_USED if name in sys.modules]
        self._context.set_forkserver_preload(IMPORTED_ONCE + used)  # for the first process alone
        _ensure_server()
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._file, self._results.folder.absolute(), cell)
        process = self._context.Process(target=_begin, args=arguments, name=str(cell))
        process.start()
        theirs.close()
        self._running[cell] = _Running(process, ours)

    def events(self, seconds: float) -> list[Moved | Ended]:
        """Return what has happened, after at most so many seconds."""
        events: list[Moved | Ended] = []
        by_connection = {one.connection: cell for cell, one in self._running.items()}
        if not by_connection:
            return events
        for connection in wait(list(by_connection), timeout=seconds):
            cell = by_connection[connection]  # type: ignore[index]
            events += self._heard(cell)
        return events

    def _heard(self, cell: Cell) -> list[Moved | Ended]:
        one = self._running[cell]
        try:
            message = one.connection.recv()
        except (EOFError, OSError):
            return [self._ended(cell)]
        if message[0] == "moved":
            return [Moved(cell, message[1], message[2])]
        one.last = message
        return []

    def _ended(self, cell: Cell) -> Ended:
        """Return how a process ended, by its last word or, without one, by its exit code."""
        one = self._running.pop(cell)
        one.connection.close()
        one.process.join()
        code = one.process.exitcode or 0
        one.process.close()
        if one.last is not None:
            return Ended(cell, *one.last)
        if self._asked_to_end and code == -signal.SIGTERM:  # it had hardly begun
            return Ended(cell, "stopped", "")
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        message = f"its process died: {how}; the same command goes on from its last checkpoint"
        self._results.keep_failure(cell, Failure(message))
        return Ended(cell, "failed", message)

    def stop(self) -> None:
        """Ask all running cells to write a checkpoint and end."""
        self._asked_to_end = True
        for one in self._running.values():
            if one.process.is_alive():
                one.process.terminate()

    def close(self) -> None:
        """End what still runs."""
        self.stop()
        for cell in list(self._running):
            one = self._running.pop(cell)
            one.connection.close()
            one.process.join()
            one.process.close()


def _ensure_server() -> None:
    """Start the server that processes are forked from, deaf to Ctrl-C from its first moment on.

    It ignores Ctrl-C by itself, but only once its imports are done. What comes meanwhile is kept
    for this process.
    """
    resource_tracker.ensure_running()  # first: starting it takes every block off again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass
class _Running:
    process: ForkServerProcess
    connection: "Connection[Any, Any]"
    last: tuple[Any, ...] | None = None


def _begin(connection: "Connection[Any, Any]", file: Path, folder: Path, cell: Cell) -> None:
    """Work on one cell; what that takes is imported in the processes of cells alone."""
    from hma.paper.cell_process import serve

    serve(connection, file, folder, cell)
