"""Data that has a name: ``digits``, ``mnist:10``, ``tu:MUTAG``."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hma.data import sets
from hma.data.options import PreparationOptions
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.source import Source
from hma.data.task_from_source import Prepared, prepare
from hma.errors import UserError

BUILTINS = tuple(name for one in sets.SETS for name in one.written)
"""Names as a user writes them; N is the number of training labels per class."""
PREFIX = "builtin:"


def is_builtin(spec: str) -> bool:
    """Tell whether SOURCE is the name of built-in data; a file of that name here is not guessed at.

    Args:
        spec: What a user wrote; ``builtin:NAME`` is never a file.

    Example:
        >>> is_builtin("digits:10"), is_builtin("tu:MUTAG"), is_builtin("digits.csv")
        (True, True, False)
    """
    if _found(spec) is None:
        return False
    if Path(spec).exists():
        raise UserError(
            f"{spec!r} is both built-in data and a file or folder here; write ./{spec} or "
            f"{PREFIX}{spec}"
        )
    return True


def builtin(
    name: str,
    *,
    seed: int,
    data_root: Path | None = None,
    download: bool = False,
    options: PreparationOptions | None = None,
    shift: str | None = None,
    told: Callable[[int, int], None] | None = None,
) -> Prepared:
    """Return built-in data, split and prepared.

    Args:
        name: One of ``BUILTINS``.
        seed: Decides the split, and all else that is left to chance.
        data_root: Where the data is; ``$HMA_DATA`` or the cache folder if not given.
        download: Fetch the data if it is not there.
        options: Choices about the input, where the data leaves any.
        shift: Divide graphs by size or degree, rather than as the data has it.
        told: Called with the rows that are encoded first, and of how many, where any are.

    Example:
        >>> prepared = builtin("digits:10", seed=0)
        >>> len(prepared.task.train), prepared.source.describe(prepared.places["train"][0])
        (100, 'image 1703')
    """
    if shift is not None:
        source = builtin_source(name, seed=seed, data_root=data_root, download=download, told=told)
        return prepare(source, seed=seed, options=options, shift=shift)
    where = {"data_root": data_root, "download": download}
    one, asked = _asked(name, seed=seed, options=options, told=told, **where)
    return one.prepare(asked)


def builtin_source(
    name: str,
    *,
    seed: int = 0,
    data_root: Path | None = None,
    download: bool = False,
    told: Callable[[int, int], None] | None = None,
) -> Source:
    """Return the rows of built-in data, all splits together.

    Args:
        name: One of ``BUILTINS``.
        seed: Decides what is left to chance.
        data_root: Where the data is.
        download: Fetch the data if it is not there.
        told: Called with the rows that are encoded first, and of how many, where any are.
    """
    one, asked = _asked(name, seed=seed, data_root=data_root, download=download, told=told)
    return one.prepare(asked).source if one.open is None else one.open(asked)


def _found(name: str) -> tuple[NamedSet, re.Match[str]] | None:
    for one in sets.SETS:
        match = re.fullmatch(one.pattern, name.removeprefix(PREFIX))
        if match is not None:
            return one, match
    return None


def _asked(name: str, **rest: Any) -> tuple[NamedSet, Asked]:
    found = _found(name)
    if found is None:
        near = get_close_matches(name, BUILTINS, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(
            f"there is no built-in data called {name!r}; {guess}there are {', '.join(BUILTINS)}"
        )
    one, match = found
    return one, Asked(name, match.groupdict(), **rest)
