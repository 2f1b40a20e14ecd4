"""Text of users made fit for terminals and pages: what would act there becomes visible instead."""

import unicodedata

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
