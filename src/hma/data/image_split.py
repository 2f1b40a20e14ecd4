"""Rows of images: normalised when asked for, and shifted and mirrored in training if wanted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from hma.data.task import Batch

PADDING = 4
Words = NDArray[np.uint64]


class Images:
    """A split of images that are read when asked for.

    Args:
        read: Returns images ``(B, C, H, W)``, bytes or floats, for places ``(B,)``.
        labels: Class ids ``(N,)``.
        mean, std: Of each channel; bytes are divided by 255 before.
        augment: Whether ``batch_for`` shifts and mirrors.
        environment: Training environment of each row ``(N,)``, if there are several.
    """

    def __init__(
        self,
        read: Callable[[Tensor], Tensor],
        labels: Tensor,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        augment: bool = False,
        environment: Tensor | None = None,
    ) -> None:
        self.read = read
        self.labels = labels
        self.mean = torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1)
        self.std = torch.tensor(std, dtype=torch.float32).view(-1, 1, 1)
        self.augment = augment
        self.environment = environment

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor) -> Batch:
        """Return the rows at ``places``."""
        return self._batch(self.read(places), places)

    def batch_for(self, places: Tensor, *, seed: int, epoch: int) -> Batch:
        """Return the rows at ``places``, shifted and mirrored if the split augments."""
        images = self.read(places)
        if self.augment:
            images = shifted_and_mirrored(images, *draws(places, seed, epoch))
        return self._batch(images, places)

    def _batch(self, images: Tensor, places: Tensor) -> Batch:
        environment = None if self.environment is None else self.environment[places]
        x = normalised(images, self.mean, self.std)
        return Batch(x, self.labels[places], places, None, environment)


def normalised(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return ``(images - mean) / std``; bytes are divided by 255 before."""
    values = images.float() / 255 if images.dtype == torch.uint8 else images
    return (values - mean) / std


def shifted_and_mirrored(images: Tensor, down: Tensor, right: Tensor, mirror: Tensor) -> Tensor:
    """Cut each image out of itself with a black border of 4 pixels, and mirror some.

    Args:
        images: ``(B, C, H, W)``.
        down, right: Where the cut begins, 0 to 8; 4 is the image itself, ``(B,)``.
        mirror: Which images are mirrored, ``(B,)`` of bool.

    Example:
        >>> row = torch.tensor([[[[1, 2, 3]]]])
        >>> four = torch.tensor([4])
        >>> shifted_and_mirrored(row, four, four + 1, torch.tensor([True])).flatten().tolist()
        [0, 3, 2]
    """
    count, channels, height, width = images.shape
    framed = pad(images, (PADDING,) * 4)  # (B, C, H + 8, W + 8)
    across = torch.arange(width).expand(count, width)
    across = torch.where(mirror[:, None], width - 1 - across, across)
    rows = (down[:, None] + torch.arange(height)).view(count, 1, height, 1)
    columns = (right[:, None] + across).view(count, 1, 1, width)
    each = torch.arange(count).view(-1, 1, 1, 1)
    return framed[each, torch.arange(channels).view(1, -1, 1, 1), rows, columns]


def draws(places: Tensor, seed: int, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return how far to shift and whether to mirror each row: its own dice, thrown in any order.

    Example:
        >>> down, right, mirror = draws(torch.arange(1000), seed=0, epoch=3)
        >>> int(down.min()), int(down.max()), bool(mirror.any() and not mirror.all())
        (0, 8, True)
    """
    words = np.full(len(places), seed % 2**64, dtype=np.uint64)
    for part in (np.uint64(epoch), places.cpu().numpy().astype(np.uint64)):
        words = mixed(words + part)
    steps = np.uint64(2 * PADDING + 1)
    down = torch.from_numpy((mixed(words + np.uint64(1)) % steps).astype(np.int64))
    right = torch.from_numpy((mixed(words + np.uint64(2)) % steps).astype(np.int64))
    mirror = torch.from_numpy((mixed(words + np.uint64(3)) >> np.uint64(63)).astype(np.bool_))
    return down, right, mirror


def mixed(words: Words) -> Words:
    """Scatter 64-bit words as SplitMix64 does, so that near words end up far apart."""
    step, first, second = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
    state: Any = words + np.uint64(step)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(first)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(second)
    result: Words = state ^ (state >> np.uint64(31))
    return result
