"""The terminal as commands write to it: text is text, whatever is in it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from hma.errors import printable


class Terminal(Console):
    """A console on which no label, file name or column name acts.

    Rich takes square brackets for markup and hands escape sequences on; here both are shown.
    """

    def say(self, line: str) -> None:
        """Print a line, however long."""
        self.print(line, soft_wrap=True)

    def render_str(self, text: str, **looks: Any) -> Text:
        """Return ``text`` as it is, made printable."""
        kept = {name: looks[name] for name in ("style", "justify", "overflow") if name in looks}
        return Text(printable(text), **kept)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show each warning as one line on stderr, without the place in the code."""
    terminal = Terminal(stderr=True)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: terminal.say(f"hma: {message}")
        yield
