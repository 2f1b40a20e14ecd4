"""Data that has a name: ``digits``, ``mnist:10``, ``tu:MUTAG``."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from hma.data.prepared import Prepared, prepare
from hma.data.sets.named_set import NamedSet, SetRequest
from hma.data.source import Source
from hma.errors import UserError
from hma.options.preparation import PreparationOptions

MODULES = (
    "digits",
    "mnist",
    "torchvision_sets",
    "spurious_motif",
    "tu",
    "sentence_sets",
    "ogb",
)
"""Files of this folder that hold data sets, in the order they are listed to a user."""
SETS: tuple[NamedSet, ...] = tuple(
    one for module in MODULES for one in import_module(f"hma.data.sets.{module}").SETS
)
BUILTINS = tuple(name for one in SETS for name in one.written)
"""Names as a user writes them; N is the number of training labels per class."""
PREFIX = "builtin:"


def is_builtin(spec: str) -> bool:
    """Tell whether SOURCE names built-in data; raise if it names a file here too.

    Args:
        spec: What a user wrote; ``builtin:NAME`` is never a file.

    Example:
        >>> is_builtin("digits:10"), is_builtin("tu:MUTAG"), is_builtin("digits.csv")
        (True, True, False)
    """
    if _find(spec) is None:
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
    one, request = _parse_name(name, seed=seed, options=options, told=told, **where)
    return one.prepare(request)


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
    one, request = _parse_name(name, seed=seed, data_root=data_root, download=download, told=told)
    return one.prepare(request).source if one.open is None else one.open(request)


def _find(name: str) -> tuple[NamedSet, re.Match[str]] | None:
    for one in SETS:
        match = re.fullmatch(one.pattern, name.removeprefix(PREFIX))
        if match is not None:
            return one, match
    return None


def _parse_name(name: str, **rest: Any) -> tuple[NamedSet, SetRequest]:
    found = _find(name)
    if found is None:
        near = get_close_matches(name, BUILTINS, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(
            f"there is no built-in data called {name!r}; {guess}there are {', '.join(BUILTINS)}"
        )
    one, match = found
    return one, SetRequest(name, match.groupdict(), **rest)
