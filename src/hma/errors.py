"""The one exception for mistakes a user can put right, and what messages share."""

from difflib import get_close_matches

MOST = 1000
"""Characters of another library's message."""


class UserError(ValueError):
    """What was asked cannot be done; the message says in one line what is wrong and what to do."""


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
