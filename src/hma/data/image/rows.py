"""What images have in common, whether they are files or arrays."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from hma.data.options import Interpolation
from hma.data.source import Source
from hma.data.task import Kind
from hma.errors import UserError

Shape = tuple[int, int, int]
"""Channels, height, width."""


class Resizing(NamedTuple):
    """How an image comes to its size.

    Args:
        interpolation: How pixels between pixels are found.
        crop: None squashes the whole image. A share keeps the ratio of the sides: the image is
            resized until this share of its shorter side is what is wanted, and that is cut out
            of its middle, as image models are tested.
    """

    interpolation: Interpolation = "bilinear"
    crop: float | None = None

    def sides(self, height: int, width: int, shape: Shape) -> tuple[int, int]:
        """Return height and width of a whole image before the middle is cut out of it.

        Example:
            >>> Resizing("bicubic", crop=0.875).sides(375, 500, (3, 224, 224))
            (256, 341)
        """
        if self.crop is None:
            return shape[1:]
        short = math.floor(max(shape[1:]) / self.crop)
        long = int(short * max(height, width) / min(height, width))
        return (short, long) if height <= width else (long, short)


WHOLE = Resizing()


def middle(whole: tuple[int, int], part: tuple[int, int]) -> tuple[int, int]:
    """Return where a part of a height and width begins in the middle of a whole, top and left."""
    return round((whole[0] - part[0]) / 2), round((whole[1] - part[1]) / 2)


class ImageRows(Source, ABC):
    """A source of kind "image"."""

    kind: ClassVar[Kind] = "image"
    unit: bool = True
    """Whether 0 is black and full brightness is 1, or 255 for bytes."""

    @abstractmethod
    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Return the shape to learn from, given the training rows and the size asked for."""

    @abstractmethod
    def read(self, rows: Tensor, shape: Shape, *, keep: bool, resizing: Resizing = WHOLE) -> Tensor:
        """Return images ``(B, C, H, W)`` of ``shape``, bytes or floats.

        Args:
            rows: Which rows, ``(B,)``.
            shape: What they are converted and resized to.
            keep: Whether decoded images may be held for the next time.
            resizing: How they come to that size.
        """


def shape_with(name: str, channels: int, shape: Shape) -> None:
    """Raise unless images with ``channels`` can be made into ``shape``."""
    if channels != shape[0]:
        raise UserError(
            f"{name} has images with {channels} channels, but the model was prepared for "
            f"{shape[0]}; give images of the same kind"
        )


def resized(images: Tensor, shape: Shape, resizing: Resizing = WHOLE) -> Tensor:
    """Return images ``(B, C, H, W)`` in another height and width; nothing happens in the same.

    Example:
        >>> resized(torch.full((1, 1, 4, 4), 9, dtype=torch.uint8), (1, 2, 2)).flatten().tolist()
        [9, 9, 9, 9]
    """
    height, width = shape[1:]
    sides = resizing.sides(images.shape[2], images.shape[3], shape)
    if tuple(images.shape[2:]) != sides:
        smooth = interpolate(images.float(), sides, mode=resizing.interpolation, antialias=True)
        as_bytes = images.dtype == torch.uint8
        images = smooth.round().clamp(0, 255).to(torch.uint8) if as_bytes else smooth
    top, left = middle(sides, (height, width))
    return images[:, :, top : top + height, left : left + width]
