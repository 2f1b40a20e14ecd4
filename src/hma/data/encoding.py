"""How the characters of a text file are written."""

from pathlib import Path

from hma.errors import UserError, reason

UTF_8 = "utf-8-sig"
"""UTF-8, with or without the mark that some programs put in front."""


def codec(encoding: str | None) -> str:
    """Return the codec of an encoding that a user names; that of UTF-8 if none is named.

    Example:
        >>> codec(None), codec("UTF8"), codec("latin-1")
        ('utf-8-sig', 'utf-8-sig', 'latin-1')
    """
    if encoding is None or encoding.lower() in ("utf-8", "utf8"):
        return UTF_8
    try:
        "".encode(encoding)
    except (LookupError, ValueError) as error:
        raise UserError(
            f"encoding must be one that Python knows, such as utf-8, latin-1, cp1252 or utf-16, "
            f"got {encoding!r}"
        ) from error
    return encoding


def wrong_encoding(path: Path, tried: str, error: UnicodeError) -> str:
    """Say that a file is not written as it was read, and how to say how it is."""
    name = "UTF-8" if tried == UTF_8 else tried
    byte = f"byte {error.object[error.start]:#04x}" if isinstance(error, UnicodeDecodeError) else ""
    return (
        f"{path} is not written in {name} ({byte or reason(error)} cannot be read); name its "
        "encoding, such as --encoding latin-1, cp1252 or utf-16"
    )
