"""Rows of images: normalised when asked for, and another variant in every epoch if wanted."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from hma.data.draws import mixed, words_of
from hma.data.task import Batch

PADDING = 4
Augmentation = Literal["shift", "mirror", "crop"]
AUGMENTATIONS: dict[Augmentation, str] = {
    "shift": "random crop with 4 pixels of padding, mirror images",
    "mirror": "mirror images",
    "crop": "random part of 8% to 100% of the area, ratio 3:4 to 4:3, resized; mirror images",
}
"""What training does at random, in words."""
Variant = Callable[[Tensor, int], Tensor]
"""Returns images ``(B, C, H, W)`` for places ``(B,)`` and an epoch."""


class Images:
    """A split of images that are read when asked for.

    Args:
        read: Returns images ``(B, C, H, W)``, bytes or floats, for places ``(B,)``.
        labels: Class ids ``(N,)``.
        mean, std: Of each channel; bytes are divided by 255 before.
        variant: Makes the images of an epoch of training; None where they are always the same.
    """

    environment: Tensor | None = None
    """Training environment of each row ``(N,)``, where there are several."""

    def __init__(
        self,
        read: Callable[[Tensor], Tensor],
        labels: Tensor,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        variant: Variant | None = None,
    ) -> None:
        self.read = read
        self.labels = labels
        self.mean = torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1)
        self.std = torch.tensor(std, dtype=torch.float32).view(-1, 1, 1)
        self.variant = variant

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def augment(self) -> bool:
        """Whether training sees another variant of the rows in every epoch."""
        return self.variant is not None

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places``, with ``epoch`` as training sees them then."""
        if self.variant is None or epoch is None:
            images = self.read(places)
        else:
            images = self.variant(places, epoch)
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
    words = words_of(places, seed, epoch)
    steps = np.uint64(2 * PADDING + 1)
    down = torch.from_numpy((mixed(words + np.uint64(1)) % steps).astype(np.int64))
    right = torch.from_numpy((mixed(words + np.uint64(2)) % steps).astype(np.int64))
    mirror = torch.from_numpy((mixed(words + np.uint64(3)) >> np.uint64(63)).astype(np.bool_))
    return down, right, mirror


def mirrored(images: Tensor, mirror: Tensor) -> Tensor:
    """Mirror some images left to right.

    Args:
        images: ``(B, C, H, W)``.
        mirror: Which of them, ``(B,)`` of bool.

    Example:
        >>> mirrored(torch.tensor([[[[1, 2, 3]]]]), torch.tensor([True])).flatten().tolist()
        [3, 2, 1]
    """
    return torch.where(mirror.view(-1, 1, 1, 1), images.flip(3), images)
