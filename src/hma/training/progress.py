"""What a person sees while a run goes on: nothing, a bar with the time left, or lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from hma.errors import printable
from hma.extras import needed

SHOW_AFTER_SECONDS = 2.0
"""A run shorter than this leaves the terminal alone."""
LINE_EVERY_SECONDS = 5.0
COLUMNS, WIDE, TITLE = 79, 120, 16
"""Of a line; of a terminal with room for a bar; of a title."""


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
            *(
                [rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn()]
                if self.console.width >= WIDE
                else [rich.TaskProgressColumn()]
            ),
            rich.TextColumn("left"),
            rich.TimeRemainingColumn(),
            rich.TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            transient=True,
            auto_refresh=False,  # no thread of its own beside the training loop
        )
        self._row = self._bar.add_task(shorten(title), total=total, completed=done, note="")

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


class LineProgress:
    """A line now and then, for a file or a pipe: no control characters, at most 79 columns.

    Args:
        file: Where to; standard error if not given.
        every: Seconds between two lines, and before the first.
        clock: Seconds since some moment.
    """

    def __init__(
        self,
        file: TextIO | None = None,
        *,
        every: float = LINE_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._every = every
        self._clock = clock
        self._title, self._total, self._first = "", 0, 0
        self._began = self._next = 0.0

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Note what begins."""
        self._title, self._total, self._first = shorten(title), total, done
        self._began = self._clock()
        self._next = self._began + self._every

    def update(self, done: int, note: str = "") -> None:
        """Write a line if the last one is a while ago."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every
        gone, made = now - self._began, done - self._first
        left = f"{_time(gone * (self._total - done) / made)} left" if made > 0 else ""
        line = f"{self._title} {100 * done // max(self._total, 1)}%, {left}  {note}"
        self.say(line.rstrip()[:COLUMNS])

    def say(self, message: str) -> None:
        """Write a line."""
        print(printable(message), file=self._file or sys.stderr, flush=True)

    def end(self) -> None:
        """Do nothing: lines stay."""


def shorten(title: str) -> str:
    """Return a title that leaves room for the rest of a line, made printable.

    Example:
        >>> shorten("a-very-long-name-of-a-folder")
        'a-very-long-nam…'
    """
    shown = printable(title)
    return shown if len(shown) <= TITLE else f"{shown[: TITLE - 1]}…"


def _time(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


@contextmanager
def progress_ticker(progress: Progress | None, title: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is told how much is done, and of how much, and hands it on.

    Args:
        progress: Told of it; None for nobody.
        title: What is being done.
    """
    told = SilentProgress() if progress is None else progress
    begun = False

    def tick(done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            told.begin(title, total)
            begun = True
        told.update(done)

    try:
        yield tick
    finally:
        if begun:
            told.end()


def progress_for_terminal(*, lines: bool = False) -> Progress:
    """Return a bar where standard error is a terminal; elsewhere silence, or lines if wanted."""
    if sys.stderr.isatty():
        return RichProgress()
    return LineProgress() if lines else SilentProgress()
