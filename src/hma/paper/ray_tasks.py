"""Cells as Ray tasks, on this machine or on many; the records come back to the one that asked."""

import os
import socket
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hma.data.storage import MissingDataError
from hma.errors import UserError, reason
from hma.extras import needed
from hma.io.files import HeldError
from hma.paper.cells import End, Ended, Moved, error_line, kept_weights, measure
from hma.paper.experiment_files import load_table
from hma.paper.results import Failure, Results
from hma.paper.table import Cell
from hma.training import Record

LOCAL, AUTO = "local", "auto"
ANSWER_SECONDS = 5.0
Answer = tuple[End, str, dict[str, Any] | None, bytes | None]
"""How a task ended, a message or traceback, the record as JSON values, weights if they are kept."""


class RayTasks:
    """Run as many cells at a time as the cluster has processors.

    Every machine of the cluster needs hma, the experiment file at the same path, and the data
    (``HMA_DATA`` is passed on). Only this process writes results; checkpoints stay where a cell
    ran, so an interrupted cell goes on from its last step only on that machine, or where the
    results folder is shared.

    Args:
        address: ``auto`` for the cluster that this machine belongs to, ``host:port`` of a head
            node, ``ray://host:port``, or ``local`` for one that lives as long as the run.
        file: The experiment file.
        results: Where records go.
    """

    def __init__(self, address: str, file: Path, results: Results) -> None:
        self._ray = needed("ray", "--ray", extra="ray")
        self._file, self._results = file, results
        _connect(self._ray, address)
        self.size = max(int(self._ray.cluster_resources().get("CPU", 1)), 1)
        self._measured = self._ray.remote(num_cpus=1, max_retries=0)(_measured)
        self._running: dict[Any, Cell] = {}
        self._claims: dict[Cell, ExitStack] = {}
        self._refused: list[Moved | Ended] = []

    def start(self, cell: Cell) -> None:
        """Hold the cell against other runners and send it to the cluster."""
        claim = ExitStack()
        try:
            claim.enter_context(self._results.claimed(cell))
        except HeldError:
            self._refused.append(Ended(cell, "busy"))
            return
        self._claims[cell] = claim
        folder = self._results.work_folder(cell).absolute()
        self._running[self._measured.remote(self._file, folder, cell)] = cell

    def events(self, seconds: float) -> list[Moved | Ended]:
        """Return the cells that ended within so many seconds."""
        events, self._refused = self._refused, []
        if not self._running:
            return events
        wait = 0.0 if events else seconds
        ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=wait)
        for task in ended:
            cell = self._running.pop(task)
            with self._claims.pop(cell):
                events.append(self._kept(cell, task))
        return events

    def _kept(self, cell: Cell, task: Any) -> Ended:
        """Write what a task came to."""
        end: End
        try:
            end, text, values, weights = self._ray.get(task)
        except self._ray.exceptions.TaskCancelledError:
            return Ended(cell, "stopped")
        except self._ray.exceptions.RayError as error:
            end, text, values, weights = "failed", f"Ray lost it: {reason(error)}", None, None
        message, _, trace = text.partition("\n")
        if values is not None:
            self._results.keep(cell, Record.from_json(values), weights)
        elif end == "failed":
            self._results.keep_failure(cell, Failure(message, trace))
        return Ended(cell, end, message)

    def stop(self) -> None:
        """Ask all running cells to write a checkpoint and end."""
        for task in self._running:
            self._ray.cancel(task)

    def close(self) -> None:
        """Let go of the cluster; running cells end."""
        self.stop()
        for claim in self._claims.values():
            claim.close()
        self._ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    """Join a cluster, or say in one line why not."""
    if address not in (LOCAL, AUTO):
        _expect_answer(address)
    passed_on = {name: os.environ[name] for name in ("HMA_DATA",) if name in os.environ}
    options: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": "ERROR",
        "runtime_env": {"env_vars": passed_on | {"OMP_NUM_THREADS": "1"}},
    }
    if address == LOCAL:
        options |= {"address": LOCAL, "_node_ip_address": "127.0.0.1", "include_dashboard": False}
    else:
        options |= {"address": address}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise UserError(
            f"--ray {address} does not answer: {reason(error)} "
            "Start a cluster with `ray start --head`, or use --ray local"
        ) from error


def _expect_answer(address: str) -> None:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise UserError(f"--ray must be auto, local, host:port or ray://host:port, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--ray {address} does not answer: {error}; is `ray start --head` running there?"
        ) from error


def _measured(file: Path, folder: Path, cell: Cell) -> Answer:
    """Measure a cell where Ray has put it."""
    try:
        table = load_table(file)
        record = measure(table, cell, folder)
        weights = kept_weights(table, cell, folder)
    except MissingDataError as error:
        return "absent", str(error), None, None
    except KeyboardInterrupt:
        return "stopped", "", None, None
    except Exception as error:  # whatever it is, the other cells go on
        return "failed", f"{error_line(error)}\n{traceback.format_exc()}", None, None
    return "done", "", record.to_json(), weights
