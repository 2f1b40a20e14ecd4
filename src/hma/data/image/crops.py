"""Random parts of images; which part is up to the numbers that it is given."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hma.data.image.rows import Shape, resized

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
