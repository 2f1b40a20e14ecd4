"""Rows told apart by numbers: equal rows have equal ones, so that two sets of rows compare fast."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hma.memory.blocks import blocks

Hashes = NDArray[np.uint64]
FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Odd numbers of splitmix64, which spread bits."""


def row_hashes(rows: Tensor) -> Hashes:
    """Return a number for each row, ``(N, K)`` to ``(N,)``; copies of a row get their own.

    Args:
        rows: Of float32, on the CPU. The second row that is the same counts as its first copy.

    Example:
        >>> import torch
        >>> first = row_hashes(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
        >>> second = row_hashes(torch.tensor([[3.0, 4.0], [1.0, 2.0]]))
        >>> (first[:2] == second[::-1]).tolist(), len(set(first.tolist()))
        ([True, True], 3)
    """
    plain = rows.detach().contiguous().numpy()
    weights = _spread(np.arange(1, plain.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    hashes = np.empty(len(plain), np.uint64)
    for part in blocks(len(plain)):
        bits = plain[part].view(np.uint32).astype(np.uint64)
        hashes[part] = (_spread(bits + weights) * weights).sum(axis=1, dtype=np.uint64)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(first)
    copies = np.arange(len(ordered)) - np.repeat(starts, np.diff([*starts, len(ordered)]))
    hashes[order] = np.where(copies == 0, ordered, _spread(ordered + copies.astype(np.uint64)))
    return hashes


def found_at(hashes: Hashes, among: Hashes) -> NDArray[np.int64]:
    """Return where each number is ``among`` others; -1 where it is not."""
    if not len(among):
        return np.full(len(hashes), -1)
    order = np.argsort(among, kind="stable")
    at = np.searchsorted(among[order], hashes).clip(max=len(among) - 1)
    places: NDArray[np.int64] = order[at]
    return np.where(among[places] == hashes, places, -1)


def _spread(values: Hashes) -> Hashes:
    values = values * FIRST
    values = (values ^ (values >> np.uint64(29))) * SECOND
    return values ^ (values >> np.uint64(32))
