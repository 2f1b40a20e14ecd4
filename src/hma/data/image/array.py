"""Images held in an array, and pictures of them to look at."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hma.data.image.rows import WHOLE, ImageRows, Resizing, Shape, resized, shape_with
from hma.data.source import array_fingerprint
from hma.extras import needed
from hma.targets import Classes

if TYPE_CHECKING:
    from PIL.Image import Image


class ArrayImages(ImageRows):
    """Images of one size held in an array.

    Args:
        name: Short name.
        images: ``(N, C, H, W)``, bytes, or floats that are taken as they are.
        labels: Raw label of each row, if there are any.
        unit: Whether 0 is black and full brightness is 1, or 255 for bytes.
        label_kind: What the labels are.
        label_names: Names of several labels.
    """

    def __init__(
        self,
        name: str,
        images: Tensor,
        labels: Sequence[Any] | None = None,
        *,
        unit: bool,
        label_kind: str = Classes.kind,
        label_names: tuple[str, ...] = ("y",),
    ) -> None:
        self.name = name
        self.images = images
        self.labels = labels
        self.unit = unit
        self.label_kind = label_kind
        self.label_names = label_names

    def __len__(self) -> int:
        return len(self.images)

    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Return the shape to learn from: that of the array, unless a size is asked for."""
        channels, height, width = self.images.shape[1:]
        return (channels, height, width) if size is None else (channels, size, size)

    def read(self, rows: Tensor, shape: Shape, *, keep: bool, resizing: Resizing = WHOLE) -> Tensor:
        """Return images ``(B, C, H, W)``, resized where ``shape`` is another."""
        shape_with(self.name, self.images.shape[1], shape)
        return resized(self.images[rows], shape, resizing)

    def describe(self, place: int) -> str:
        """Return the number of the image."""
        return f"image {place}"

    def thumbnail(self, place: int) -> "Image":
        """Return the image; two channels are red and green."""
        return picture(self.images[place], self.unit)

    def fingerprint(self) -> str:
        """Return the SHA-256 of pixels and labels."""
        return array_fingerprint(self.images.numpy(), self.labels)


def picture(pixels: Tensor, unit: bool) -> "Image":
    """Return one image ``(C, H, W)`` of any number of channels as a picture to look at."""
    image = needed("PIL.Image", "showing images")
    shown = pixels.float()
    if pixels.dtype != torch.uint8:
        low, high = (0.0, 1.0) if unit else (float(shown.min()), float(shown.max()))
        shown = (shown - low) / max(high - low, 1e-12) * 255
    channels = shown.round().clamp(0, 255).to(torch.uint8)
    if len(channels) == 2:
        channels = torch.cat([channels, torch.zeros_like(channels[:1])])  # red, green, no blue
    if len(channels) not in (1, 3):
        channels = channels[:3] if len(channels) > 3 else channels[:1]
    array = channels[0].numpy() if len(channels) == 1 else channels.permute(1, 2, 0).numpy()
    made: Image = image.fromarray(np.ascontiguousarray(array))
    return made
