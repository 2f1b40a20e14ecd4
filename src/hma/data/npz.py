"""Arrays: an ``.npz`` with ``x`` and ``y``, a table or images by the shape of ``x``."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.image.rows import resized, shape_with
from hma.data.labels import expect_present, label_text, listed
from hma.data.table.files import Frame, described
from hma.data.task import Kind
from hma.errors import UserError
from hma.extras import needed

if TYPE_CHECKING:
    from PIL.Image import Image

CHANNELS = (1, 3, 4)


class ArrayTable:
    """Rows of numbers ``(N, F)``; the columns are named ``x0``, ``x1``, and so on.

    Args:
        name: Short name.
        x: The numbers; NaN where missing.
        labels: Label of each row, if there are any.
    """

    kind: Kind = "table"
    skipped: Sequence[str] = ()

    def __init__(self, name: str, x: NDArray[Any], labels: Sequence[str] | None = None) -> None:
        self.name = name
        self.x = x
        self.labels = labels
        self.target = None if labels is None else "y"
        self.columns = tuple(f"x{place}" for place in range(x.shape[1]))

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def frame(self) -> Frame:
        """All rows, the labels in column ``y``."""
        pandas = needed("pandas", "a table")
        frame = pandas.DataFrame(self.x.astype(np.float64), columns=list(self.columns))
        return frame if self.labels is None else frame.assign(y=list(self.labels))

    def chunks(self, rows: int) -> Iterator[Frame]:
        """Yield all rows in order, ``rows`` at a time."""
        for first in range(0, len(self.x), rows):
            yield self.frame.iloc[first : first + rows].reset_index(drop=True)

    def describe(self, place: int) -> str:
        """Return the row number and the first few values."""
        return described(place, dict(zip(self.columns, self.x[place].tolist(), strict=True)))

    def thumbnail(self, place: int) -> None:
        """Return None: a row of a table has no picture."""

    def fingerprint(self) -> str:
        """Return the SHA-256 of numbers and labels."""
        return digest(self.x, self.labels)


class ArrayImages:
    """Images of one size held in an array.

    Args:
        name: Short name.
        images: ``(N, C, H, W)``, bytes, or floats that are taken as they are.
        labels: Label of each row, if there are any.
        unit: Whether 0 is black and full brightness is 1, or 255 for bytes.
    """

    kind: Kind = "image"
    skipped: Sequence[str] = ()

    def __init__(
        self, name: str, images: Tensor, labels: Sequence[str] | None = None, *, unit: bool
    ) -> None:
        self.name = name
        self.images = images
        self.labels = labels
        self.unit = unit

    def __len__(self) -> int:
        return len(self.images)

    def shape_for(self, places: Sequence[int], size: int | None) -> tuple[int, int, int]:
        """Return the shape to learn from: that of the array, unless a size is asked for."""
        channels, height, width = self.images.shape[1:]
        return (channels, height, width) if size is None else (channels, size, size)

    def read(self, rows: Tensor, shape: tuple[int, int, int], *, keep: bool) -> Tensor:
        """Return images ``(B, C, H, W)``, resized where ``shape`` is another."""
        shape_with(self.name, self.images.shape[1], shape)
        return resized(self.images[rows], shape)

    def describe(self, place: int) -> str:
        """Return the number of the image."""
        return f"image {place}"

    def thumbnail(self, place: int) -> "Image":
        """Return the image; two channels are red and green."""
        return picture(self.images[place], self.unit)

    def fingerprint(self) -> str:
        """Return the SHA-256 of pixels and labels."""
        return digest(self.images.numpy(), self.labels)


def open_arrays(path: Path) -> ArrayTable | ArrayImages:
    """Open an ``.npz`` with ``x`` and, unless it is to be predicted, ``y``; never unpickles."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"{path} cannot be read as an .npz of plain arrays: {error}; write it with "
            "numpy.savez(path, x=..., y=...), without object arrays"
        ) from error
    if "x" not in arrays:
        raise UserError(f"{path} has no array 'x'; it has {listed(sorted(arrays))}")
    x, y = arrays["x"], arrays.get("y")
    if x.dtype.kind not in "biuf":
        raise UserError(f"x of {path} must be numbers, got dtype {x.dtype}")
    labels = None if y is None else _labels(path, y, len(x) if x.ndim else 0)
    if x.ndim == 2:
        return ArrayTable(path.name, x, labels)
    images = torch.from_numpy(np.ascontiguousarray(_channels_first(path, x)))
    whole = x.dtype.kind in "biu" and x.size > 0 and x.min() >= 0 and x.max() <= 255
    if not whole and not torch.isfinite(images.float()).all():
        raise UserError(f"x of {path} holds images with NaN or infinity; replace these values")
    return ArrayImages(
        path.name, images.to(torch.uint8 if whole else torch.float32), labels, unit=whole
    )


def digest(array: NDArray[Any], labels: Sequence[str] | None) -> str:
    """Return the SHA-256 of an array and labels."""
    found = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).data)
    found.update(repr(None if labels is None else list(labels)).encode())
    return found.hexdigest()


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


def _labels(path: Path, y: NDArray[Any], rows: int) -> list[str]:
    if y.shape != (rows,):
        raise UserError(
            f"y of {path} must hold one label for each of the {rows} rows of x, got shape {y.shape}"
        )
    found = [label_text(value) for value in y.tolist()]
    missing = [place for place, label in enumerate(found) if label is None]
    expect_present(missing, rows, f"y of {path}")
    return [label for label in found if label is not None]


def _channels_first(path: Path, x: NDArray[Any]) -> NDArray[Any]:
    """Return images as ``(N, C, H, W)``, wherever the channels are."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[1] in CHANNELS and x.shape[3] not in CHANNELS:
        return x
    if x.ndim == 4 and x.shape[3] in CHANNELS and x.shape[1] not in CHANNELS:
        return x.transpose(0, 3, 1, 2)
    raise UserError(
        f"x of {path} must have shape (N, features), (N, height, width), (N, channels, height, "
        f"width) or (N, height, width, channels) with 1, 3 or 4 channels, got {x.shape}"
    )
