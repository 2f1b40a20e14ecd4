"""Rows held in arrays, a table or images by the shape of ``x``, and the ``.npz`` they come in."""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from zipfile import ZipFile

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from hma.data.image.source import WHOLE, ImageSource, Resizing, Shape, expect_channels, resize
from hma.data.labels import (
    CLASSES,
    YES_NO,
    LabelKind,
    expect_present,
    label_kind_for,
    label_text,
    listed,
)
from hma.data.source import array_fingerprint
from hma.data.table.columns import Frame
from hma.data.table.source import TableSource, describe_row
from hma.errors import UserError, reason
from hma.extras import needed
from hma.options.run import Aim

if TYPE_CHECKING:
    from PIL.Image import Image


CHANNELS = (1, 3, 4)
HEADER = 10_000
"""Most bytes of the description of an array."""


class ArrayTable(TableSource):
    """Rows of numbers ``(N, F)``; the columns are named ``x0``, ``x1``, and so on.

    Args:
        name: Short name.
        x: The numbers; NaN where missing.
        labels: Raw label of each row, if there are any.
        label_kind: What the labels are.
        label_names: Names of several labels.
    """

    def __init__(
        self,
        name: str,
        x: NDArray[Any],
        labels: Sequence[Any] | None = None,
        *,
        label_kind: LabelKind = CLASSES,
        label_names: tuple[str, ...] = ("y",),
    ) -> None:
        self.name = name
        self.x = x
        self.labels = labels
        self.label_kind = label_kind
        self.label_names = label_names
        self.target = () if labels is None else label_names
        self.columns = tuple(f"x{place}" for place in range(x.shape[1]))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def labels_from(self) -> str:
        """The array."""
        return f"y of {self.name}"

    @cached_property
    def frame(self) -> Frame:
        """All rows, the labels beside them."""
        pandas = needed("pandas", "a table")
        frame = pandas.DataFrame(self.x.astype(np.float64), columns=list(self.columns))
        if self.labels is None:
            return frame
        several = len(self.target) > 1
        columns = zip(*self.labels, strict=True) if several else [self.labels]
        return frame.assign(**dict(zip(self.target, map(list, columns), strict=True)))

    def without_labels(self) -> Self:
        """Return the numbers alone."""
        part = super().without_labels()
        part.target = ()
        part.__dict__.pop("frame", None)
        return part

    def describe(self, place: int) -> str:
        """Return the row number and the first few values."""
        return describe_row(place, dict(zip(self.columns, self.x[place].tolist(), strict=True)))

    def fingerprint(self) -> str:
        """Return the SHA-256 of numbers and labels."""
        return array_fingerprint(self.x, self.labels)


class ArrayImages(ImageSource):
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
        label_kind: LabelKind = CLASSES,
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
        expect_channels(self.name, self.images.shape[1], shape)
        return resize(self.images[rows], shape, resizing)

    def describe(self, place: int) -> str:
        """Return the number of the image."""
        return f"image {place}"

    def thumbnail(self, place: int) -> "Image":
        """Return the image; two channels are red and green."""
        return draw_picture(self.images[place], self.unit)

    def fingerprint(self) -> str:
        """Return the SHA-256 of pixels and labels."""
        return array_fingerprint(self.images.numpy(), self.labels)


def draw_picture(pixels: Tensor, unit: bool) -> "Image":
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


def open_arrays(
    path: Path, aim: Aim | None = None, skip_missing_labels: bool = False
) -> ArrayTable | ArrayImages:
    """Open an ``.npz`` with ``x`` and, unless it is to be predicted, ``y``; never unpickles.

    Only these two are read, and none before its description agrees with its size.

    Args:
        path: The file.
        aim: What is learned, see :func:`hma.data.open_source`; ``y`` of several columns holds
            yes/no labels (0, 1, and NaN where missing) unless it is to be soft labels.
        skip_missing_labels: Allow rows without a label.
    """
    arrays = _read(path, ("x", "y"))
    x, y = arrays["x"], arrays.get("y")
    if x.dtype.kind not in "biuf":
        raise UserError(f"x of {path} must be numbers, got dtype {x.dtype}")
    labels = {}
    if y is not None:
        labels = _labels(path, y, len(x) if x.ndim else 0, aim, skip_missing_labels)
    if x.ndim == 2:
        return ArrayTable(path.name, x, **labels)
    images = torch.from_numpy(np.ascontiguousarray(_channels_first(path, x).astype(_plain(x))))
    whole = bool(x.dtype.kind in "biu" and x.size > 0 and x.min() >= 0 and x.max() <= 255)
    if not whole and not torch.isfinite(images.float()).all():
        raise UserError(f"x of {path} holds images with NaN or infinity; replace these values")
    return ArrayImages(
        path.name, images.to(torch.uint8 if whole else torch.float32), unit=whole, **labels
    )


def _read(path: Path, wanted: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the wanted arrays of an ``.npz``; only the first must be there."""
    try:
        with ZipFile(path) as file:
            members = {name.removesuffix(".npy"): name for name in file.namelist()}
            arrays = {}
            for name in set(wanted) & set(members):
                with file.open(members[name]) as member:
                    _expect_whole(member, file.getinfo(members[name]).file_size)
                with file.open(members[name]) as member:
                    arrays[name] = npy.read_array(
                        member, allow_pickle=False, max_header_size=HEADER
                    )
    except OSError as error:
        why = error.strerror or reason(error)
        raise UserError(f"{path} cannot be read: {why}; see to that and try again") from error
    except Exception as error:  # a damaged file fails in many ways
        raise UserError(
            f"{path} cannot be read as an .npz of plain arrays: {reason(error)}; write it with "
            "numpy.savez(path, x=..., y=...), without object arrays"
        ) from error
    if wanted[0] not in arrays:
        raise UserError(f"{path} has no array {wanted[0]!r}; it has {listed(sorted(members))}")
    return arrays


def _expect_whole(member: IO[bytes], size: int) -> None:
    """Raise unless an array has as many bytes as its description says."""
    version = npy.read_magic(member)
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(member, max_header_size=HEADER)
    if dtype.hasobject:
        raise ValueError("it holds an object array")
    told = member.tell() + prod(shape) * dtype.itemsize
    if told != size:
        raise ValueError(f"an array of shape {shape} and dtype {dtype} is not {size} bytes")


def _plain(x: NDArray[Any]) -> Any:
    """Return a dtype that torch has and that holds these numbers, in this machine's byte order."""
    if x.dtype.kind == "f":
        return np.float32 if x.dtype.itemsize <= 4 else np.float64
    return x.dtype.newbyteorder("=")


def _labels(
    path: Path, y: NDArray[Any], rows: int, aim: Aim | None, skip_missing: bool
) -> dict[str, Any]:
    """Return the raw labels, their kind and their names."""
    if y.ndim not in (1, 2) or len(y) != rows or (y.ndim == 2 and y.shape[1] < 1):
        raise UserError(
            f"y of {path} must hold one label for each of the {rows} rows of x, or one row of "
            f"labels, got shape {y.shape}"
        )
    columns = 1 if y.ndim == 1 else y.shape[1]
    kind = label_kind_for(aim, columns) if y.ndim == 1 or columns > 1 else YES_NO
    labels: list[Any] = [_text(value) for value in y.tolist()]
    missing = [place for place, label in enumerate(labels) if kind.is_missing(label)]
    if not skip_missing:
        expect_present(missing, rows, f"y of {path}")
    names = tuple(f"y{place}" for place in range(columns)) if y.ndim == 2 else ("y",)
    return {"labels": labels, "label_kind": kind, "label_names": names}


def _text(value: Any) -> Any:
    return tuple(map(label_text, value)) if isinstance(value, list) else label_text(value)


def _channels_first(path: Path, x: NDArray[Any]) -> NDArray[Any]:
    """Return images as ``(N, C, H, W)``, whichever axis has the channels."""
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
