"""The process of a cell: works on it, tells how far it is, and ends with the one that started it.

Imported once, by the server that these processes are forked from: it takes seconds.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hma.data.storage import MissingDataError
from hma.errors import UserError
from hma.extras import fabric_module, needed
from hma.io.files import HeldError
from hma.paper.cells import error_line, work
from hma.paper.experiment_files import load_table
from hma.paper.results import Results
from hma.paper.table import Cell

fabric_module()
needed("tensorboard.summary.writer.record_writer", "logging for TensorBoard")
needed("tensorboard.compat.proto.event_pb2", "logging for TensorBoard")


class Reporting:
    """Progress of a cell, told to the process that started it."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._total = 0

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Say how long the training is."""
        self._total = total
        self.update(done)

    def update(self, done: int, note: str = "") -> None:
        """Say how far it is."""
        with suppress(OSError):  # nobody listens any more; the process is about to be asked to end
            self._connection.send(("moved", done, self._total))

    def say(self, message: str) -> None:
        """Keep quiet."""

    def end(self) -> None:
        """Keep quiet."""


def serve(connection: "Connection[Any, Any]", file: Path, folder: Path, cell: Cell) -> None:
    """Work on one cell in a fresh process, and say how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the starter, which asks to end
    request = _RequestToEnd()
    try:
        signal.signal(signal.SIGTERM, request)
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        last = _outcome(Results(folder), file, cell, Reporting(connection))
        request.heard = True
    except KeyboardInterrupt:
        last = ("stopped", "")
    with suppress(OSError):
        connection.send(last)
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do, and tearing torch down takes a while


def _outcome(results: Results, file: Path, cell: Cell, progress: Reporting) -> tuple[str, str]:
    try:
        work(load_table(file), cell, results, progress)
    except HeldError:
        return "busy", ""
    except MissingDataError as error:
        return "absent", str(error)
    except (OSError, UserError) as error:  # such as a full disk: nothing could be written
        return "failed", error_line(error)
    failure = results.failure(cell)
    return ("done", "") if failure is None else ("failed", failure.error)


class _RequestToEnd:
    """A signal that interrupts the work once, and nothing that comes after the work."""

    def __init__(self) -> None:
        self.heard = False

    def __call__(self, number: int, frame: object) -> None:
        if not self.heard:
            self.heard = True
            raise KeyboardInterrupt


def _end_with(connection: "Connection[Any, Any]") -> None:
    """Wait until the starter is gone, then ask this process to end."""
    with suppress(EOFError, OSError):
        connection.poll(None)
        connection.recv()
    os.kill(os.getpid(), signal.SIGTERM)
