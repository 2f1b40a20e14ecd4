"""Random numbers that depend on a row, a seed and an epoch alone."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint64]
"""64 random bits each."""


def words_of(places: Tensor, seed: int, epoch: int) -> Words:
    """Return 64 random bits for each row: a function of its place, ``seed`` and ``epoch`` alone."""
    words = np.full(len(places), seed % 2**64, dtype=np.uint64)
    for part in (np.uint64(epoch), places.cpu().numpy().astype(np.uint64)):
        words = mixed(words + part)
    return words


def dice_of(words: Words, count: int) -> Tensor:
    """Return ``count`` numbers from 0 to 1 for each row, ``(B, count)``.

    Example:
        >>> dice = dice_of(words_of(torch.arange(1000), seed=0, epoch=3), 2)
        >>> dice.shape, bool((dice >= 0).all() and (dice < 1).all())
        (torch.Size([1000, 2]), True)
    """
    turns = np.arange(1, count + 1, dtype=np.uint64)
    return numbers_of(mixed(words[:, None] + turns))  # (B,) -> (B, count)


def numbers_of(words: Words) -> Tensor:
    """Return words as numbers from 0 to 1, the upper end excluded, 53 bits each."""
    return torch.from_numpy((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def mixed(words: Words) -> Words:
    """Scatter 64-bit words as SplitMix64 does, so that near words end up far apart."""
    step, first, second = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
    state: Words = words + np.uint64(step)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(first)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(second)
    result: Words = state ^ (state >> np.uint64(31))
    return result
