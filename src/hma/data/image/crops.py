"""Random parts of images: which part, decided by numbers that belong to a row and an epoch."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.image.rows import Shape, resized

Words = NDArray[np.uint64]
ATTEMPTS = 10
THROWS = 4 * ATTEMPTS
"""Numbers that a part needs at most: area, shape, top and left, for each attempt."""
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
"""Width divided by height."""

Part = tuple[int, int, int, int]
"""Top, left, height, width."""


def part_of(height: int, width: int, dice: Sequence[float]) -> Part:
    """Return a part with 8% to all of the area and a ratio of 3:4 to 4:3, as torchvision draws it.

    Where ten attempts do not fit into the image, it is the largest such part of its middle.

    Args:
        height, width: Of the image.
        dice: ``THROWS`` numbers from 0 to 1, the upper end excluded.

    Example:
        >>> part_of(100, 80, [0.5, 0.5, 0.0, 0.999] + 36 * [0.0])
        (0, 14, 66, 66)
    """
    low, high = (math.log(ratio) for ratio in RATIO)
    for place in range(0, THROWS, 4):
        share, shape, down, right = dice[place : place + 4]
        area = height * width * (AREA[0] + (AREA[1] - AREA[0]) * share)
        ratio = math.exp(low + (high - low) * shape)
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            return int(down * (height - tall + 1)), int(right * (width - wide + 1)), tall, wide
    tall, wide = height, width
    if width / height < RATIO[0]:
        tall = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        wide = round(height * RATIO[1])
    return (height - tall) // 2, (width - wide) // 2, tall, wide


def parts_of(images: Tensor, shape: Shape, dice: Tensor) -> Tensor:
    """Return a part of each image, resized.

    Args:
        images: ``(B, C, H, W)``.
        shape: What the parts are resized to.
        dice: Numbers that decide which part, ``(B, THROWS)``.
    """
    height, width = images.shape[2:]
    cut = []
    for image, row in zip(images, dice.tolist(), strict=True):
        top, left, tall, wide = part_of(height, width, row)
        part = image[None, :, top : top + tall, left : left + wide]
        cut.append(resized(part, shape))
    return torch.cat(cut) if cut else images.new_empty(0, *shape)


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
    bits = mixed(words[:, None] + turns) >> np.uint64(11)  # (B,) -> (B, count), 53 bits each
    return torch.from_numpy(bits.astype(np.float64) * 2.0**-53)


def mixed(words: Words) -> Words:
    """Scatter 64-bit words as SplitMix64 does, so that near words end up far apart."""
    step, first, second = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
    state: Words = words + np.uint64(step)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(first)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(second)
    result: Words = state ^ (state >> np.uint64(31))
    return result
