"""The one exception for mistakes a user can put right."""

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
