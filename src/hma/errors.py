"""Mistakes a user can put right: the one exception, and text that is safe to show."""

import unicodedata
from difflib import get_close_matches

MOST = 1000
"""Characters of another library's message."""


class UserError(ValueError):
    """What was asked cannot be done; the message says in one line what is wrong and what to do."""


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


def reason(error: BaseException) -> str:
    r"""Return what an error of another library says, in one line; its kind where it says nothing.

    Example:
        >>> reason(OSError("no such\nfile")), reason(KeyError())
        ('no such file', 'KeyError')
    """
    return (" ".join(str(error).split()) or type(error).__name__)[:MOST]


def wrong_choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Say which values ``name`` takes and which of them was probably meant.

    Example:
        >>> wrong_choice("scale", "hed", ("head", "token"))
        "scale must be one of 'head', 'token', got 'hed'; did you mean 'head'?"
    """
    close = get_close_matches(str(value), allowed, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}{hint}"


TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that turn the direction of the text after them."""


def printable(text: str) -> str:
    """Return ``text`` with control characters, escape sequences and broken bytes made visible.

    Labels, names of files and columns, and everything else that was not written by us, go
    through here before a terminal or a page shows them.

    Example:
        >>> printable("a\\x1b[31mb\\u202ec")
        'a\ufffd[31mb\ufffdc'
    """
    if text.isprintable() and text.isascii():
        return text
    return "".join("\ufffd" if _acts(character) else character for character in text)


def on_one_line(text: str) -> str:
    """Return ``text`` printable and on one line.

    Example:
        >>> on_one_line(" a\\n\\tb ")
        'a b'
    """
    return " ".join(printable(text).split())


def _acts(character: str) -> bool:
    if character in "\n\t":
        return False
    return character in TURNING or unicodedata.category(character) in ("Cc", "Cs")
