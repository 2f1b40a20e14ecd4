"""Curves for TensorBoard, written without a thread, so that a full disk is one clear error."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hma.extras import needed
from hma.io.files import explain_write_errors


class ScalarLog(Protocol):
    """Takes named numbers of a step."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Keep ``values`` of ``step``."""
        ...

    def flush(self) -> None:
        """Make sure that what was added is on disk."""
        ...

    def close(self) -> None:
        """End the log."""
        ...


class NoLog:
    """Keep nothing."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TensorBoardLog:
    """Scalars in TensorBoard's event format, a new file for each start of a run.

    Args:
        folder: Where event files go; made if needed.
        first_step: Step this start continues from; TensorBoard then hides what an earlier start
            logged from there on.
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        self._protocol = needed("tensorboard.compat.proto.event_pb2", "logging for TensorBoard")
        self._summary = needed("tensorboard.compat.proto.summary_pb2", "logging for TensorBoard")
        records = needed("tensorboard.summary.writer.record_writer", "logging for TensorBoard")
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / name
        with explain_write_errors(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "wb")  # noqa: SIM115 - closed by close()
        self._records = records.RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        started = self._protocol.SessionLog(status=self._protocol.SessionLog.START)
        self._write(step=first_step, session_log=started)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Keep ``values`` of ``step``; they reach the disk with the next :meth:`flush`."""
        scalars = [self._summary.Summary.Value(tag=t, simple_value=v) for t, v in values.items()]
        self._write(step=step, summary=self._summary.Summary(value=scalars))

    def _write(self, **content: Any) -> None:
        event = self._protocol.Event(wall_time=time.time(), **content)
        with explain_write_errors(self.path):
            self._records.write(event.SerializeToString())

    def flush(self) -> None:
        """Make sure that what was added is on disk."""
        with explain_write_errors(self.path):
            self._file.flush()

    def close(self) -> None:
        """End the log."""
        with explain_write_errors(self.path):
            self._file.close()
