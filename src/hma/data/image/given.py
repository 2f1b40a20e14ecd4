"""Pictures that are given one by one, as the content of their files."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hma.data.image.files import FORMATS, pixels_of, thumbnail_of
from hma.data.image.rows import WHOLE, ImageRows, Resizing, Shape, shape_with
from hma.errors import UserError, reason

if TYPE_CHECKING:
    from PIL.Image import Image


class GivenImages(ImageRows):
    """Pictures without labels, decoded as those of a folder are.

    Args:
        name: Short name.
        pictures: Content of a PNG, JPEG or other file of pictures, each.
    """

    def __init__(self, name: str, pictures: Sequence[bytes]) -> None:
        self.name = name
        self.labels = None
        self.pictures = list(pictures)

    def __len__(self) -> int:
        return len(self.pictures)

    def shape_for(self, places: Sequence[int], size: int | None) -> Shape:
        """Raise: nothing is learned from pictures that are asked about."""
        raise UserError(f"{self.name} holds pictures to ask about, from which nothing is learned")

    def read(self, rows: Tensor, shape: Shape, *, keep: bool, resizing: Resizing = WHOLE) -> Tensor:
        """Return the pictures decoded, gray or in colour, and resized; ``(B, C, H, W)`` bytes."""
        if shape[0] not in (1, 3):
            shape_with(self.name, 3, shape)
        found = [torch.empty(0, *shape, dtype=torch.uint8)]
        for place in rows.tolist():
            with self._readable(place):
                found.append(pixels_of(BytesIO(self.pictures[place]), shape, resizing)[None])
        return torch.cat(found)

    def describe(self, place: int) -> str:
        """Return the number of the picture."""
        return f"image {place} of {self.name}"

    def thumbnail(self, place: int) -> "Image":
        """Return the picture in colour, at most 224 pixels wide and high."""
        with self._readable(place):
            return thumbnail_of(BytesIO(self.pictures[place]))

    def fingerprint(self) -> str:
        """Return the SHA-256 of the pictures."""
        digest = hashlib.sha256()
        for picture in self.pictures:
            digest.update(hashlib.sha256(picture).digest())
        return digest.hexdigest()

    @contextmanager
    def _readable(self, place: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a damaged picture fails in many ways
            raise UserError(
                f"image {place} of {self.name} cannot be read: {reason(error)}; give the content "
                f"of one of {', '.join(FORMATS)}"
            ) from error
