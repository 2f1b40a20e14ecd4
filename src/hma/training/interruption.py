"""Stopping between two steps: the first Ctrl-C or SIGTERM asks, the second does not wait."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop and did so after the step it was in.

    Args:
        message: One line for the person who asked.
        signal_number: What asked.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program ended by that signal."""
        return 128 + self.signal_number


class StopRequests:
    """Within the block, remember a first SIGINT or SIGTERM instead of dying from it.

    Python lets only the main thread receive signals; in any other the block changes nothing.
    A signal that the process was told to ignore stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.idle = False
        """Whether nothing runs that has anything to keep, so that not even the first waits."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler is not None and handler != signal.SIG_IGN:
                    self._before[number] = handler
                    signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.idle:
            raise Interrupted("stopped; the same command goes on", number)
        if self.received is not None:
            raise Interrupted(
                "stopped at once, without a checkpoint of the last steps; start the same run again "
                "to go on from the one before",
                number,
            )
        self.received = number
