"""What a person sees while a run goes on: nothing, or a bar with the time that is left."""

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from hma.extras import needed
from hma.printable import printable

SHOW_AFTER_SECONDS = 2.0
"""A run shorter than this leaves the terminal alone."""


class Progress(Protocol):
    """Told by the training loop how far it is, a few times a second at most."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Start a run of ``total`` steps, ``done`` of them before an interruption."""
        ...

    def update(self, done: int, note: str = "") -> None:
        """Say how many steps are done, and what else is worth knowing now."""
        ...

    def say(self, message: str) -> None:
        """Tell something that stays on the screen."""
        ...

    def end(self) -> None:
        """Take the bar away; called once for each ``begin``, after errors too."""
        ...


class SilentProgress:
    """Say nothing."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Do nothing."""

    def update(self, done: int, note: str = "") -> None:
        """Do nothing."""

    def say(self, message: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class RichProgress:
    """A bar with steps done, time gone, time left and the latest numbers.

    Args:
        console: A ``rich.console.Console``; one on standard error if not given.
        after: Seconds a run must have lasted before the bar shows.
        clock: Seconds since some moment.
    """

    def __init__(
        self,
        console: Any = None,
        *,
        after: float = SHOW_AFTER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        rich = needed("rich.progress", "showing progress")
        self.console = console or needed("rich.console", "showing progress").Console(stderr=True)
        self._rich = rich
        self._after = after
        self._clock = clock
        self._began = 0.0
        self._bar: Any = None
        self._row: Any = None

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Make the bar ready; it shows once the run has lasted a while."""
        rich = self._rich
        self._began = self._clock()
        self._bar = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("left"),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            transient=True,
            auto_refresh=False,  # no thread of its own beside the training loop
        )
        self._row = self._bar.add_task(printable(title), total=total, completed=done, note="")

    def update(self, done: int, note: str = "") -> None:
        """Move the bar and draw it."""
        if self._bar is None:
            return
        self._bar.update(self._row, completed=done, note=note)
        if not self._bar.live.is_started:
            if self._clock() - self._began < self._after:
                return
            self._bar.start()
        self._bar.refresh()

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        self.console.print(printable(message), markup=False, highlight=False)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None and self._bar.live.is_started:
            self._bar.stop()
        self._bar = None


def progress_for_terminal() -> Progress:
    """Return a bar where standard error is a terminal, silence elsewhere."""
    return RichProgress() if sys.stderr.isatty() else SilentProgress()
