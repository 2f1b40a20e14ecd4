"""What images have in common, whether they are files or arrays."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from hma.data.source import Source
from hma.data.task import Kind
from hma.errors import UserError

Shape = tuple[int, int, int]
"""Channels, height, width."""


class ImageRows(Source, ABC):
    """A source of kind "image"."""

    kind: ClassVar[Kind] = "image"
    unit: bool = True
    """Whether 0 is black and full brightness is 1, or 255 for bytes."""

    @abstractmethod
    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Return the shape to learn from, given the training rows and the size asked for."""

    @abstractmethod
    def read(self, rows: Tensor, shape: Shape, *, keep: bool) -> Tensor:
        """Return images ``(B, C, H, W)`` of ``shape``, bytes or floats.

        Args:
            rows: Which rows, ``(B,)``.
            shape: What they are converted and resized to.
            keep: Whether decoded images may be held for the next time.
        """


def shape_with(name: str, channels: int, shape: Shape) -> None:
    """Raise unless images with ``channels`` can be made into ``shape``."""
    if channels != shape[0]:
        raise UserError(
            f"{name} has images with {channels} channels, but the model was prepared for "
            f"{shape[0]}; give images of the same kind"
        )


def resized(images: Tensor, shape: Shape) -> Tensor:
    """Return images ``(B, C, H, W)`` in another height and width; nothing happens in the same.

    Example:
        >>> resized(torch.full((1, 1, 4, 4), 9, dtype=torch.uint8), (1, 2, 2)).flatten().tolist()
        [9, 9, 9, 9]
    """
    if tuple(images.shape[2:]) == shape[1:]:
        return images
    smooth = interpolate(images.float(), shape[1:], mode="bilinear", antialias=True)
    if images.dtype == torch.uint8:
        return smooth.round().clamp(0, 255).to(torch.uint8)
    return smooth
