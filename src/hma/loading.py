"""Ctrl-C while the command ``hma`` is still loading: one line instead of a traceback.

Imported before torch. A program that only imports hma is left alone.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType


def is_command() -> bool:
    """Tell whether this process is the command ``hma`` or ``python -m hma``."""
    if sys.argv[:1] == ["-m"]:  # while python looks for the module
        after = sys.orig_argv.index("-m") + 1
        return sys.orig_argv[after : after + 1] == ["hma"]
    return Path(sys.argv[0]).stem == "hma" and sys.argv[0] in sys.orig_argv


def begin() -> None:
    """Let Ctrl-C end the process at once, unless somebody has decided otherwise."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


def end() -> None:
    """Let Ctrl-C raise ``KeyboardInterrupt`` again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"hma: interrupted before anything was done\n")
    os._exit(130)


if is_command():
    begin()
