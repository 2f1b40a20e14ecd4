"""Memories of many rows are looked at block by block, so that what is held at once stays flat."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

AT_ONCE = 65536
"""Rows that are looked at in one piece; a memory of more has many rows."""
MOST_DISTANCES = 2**22
"""Distances between rows that are held at once, so that memory stays flat."""
MOST_SCORES = 2**24
"""Scores of queries with rows that are held at once where rows are many."""


def is_large(count: int) -> bool:
    """Return whether so many rows are not looked at in one piece."""
    return count > AT_ONCE


def blocks(count: int) -> Iterator[slice]:
    """Yield slices that together are all of ``count`` rows; of few rows, one.

    Example:
        >>> [(part.start, part.stop) for part in blocks(100_000)]
        [(0, 65536), (65536, 100000)]
    """
    for first in range(0, max(count, 1), AT_ONCE):
        yield slice(first, min(first + AT_ONCE, count))


def in_blocks(make: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return ``make(rows)`` of a function that treats each row by itself, made block by block.

    Args:
        make: From ``(N, ...)`` to ``(N, ...)``.
        rows: The first axis is that of the rows.
    """
    if torch.compiler.is_compiling() or not is_large(len(rows)):  # a program has any batch size
        return make(rows)
    whole: Tensor | None = None
    for part in blocks(len(rows)):
        made = make(rows[part])
        whole = made.new_empty(len(rows), *made.shape[1:]) if whole is None else whole
        whole[part] = made
    assert whole is not None
    return whole


def evenly_spaced(count: int, most: int | None = None) -> Tensor:
    """Return the places of ``most`` of ``count`` rows, evenly spaced; of fewer rows all.

    Args:
        count: Rows that there are.
        most: Places that are wanted; None for as many as are looked at in one piece.

    Example:
        >>> evenly_spaced(9, most=3).tolist(), evenly_spaced(2, most=3).tolist()
        ([0, 4, 8], [0, 1])
    """
    taken = min(count, AT_ONCE if most is None else most)
    return torch.linspace(0, count - 1, taken, dtype=torch.float64).round().long()
