"""Arrays: an ``.npz`` with ``x`` and ``y``, a table or images by the shape of ``x``."""

from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from hma.data.image.array import ArrayImages
from hma.data.label_kinds import LABEL_KINDS, Aim, label_kind_for
from hma.data.labels import expect_present, label_text, listed
from hma.data.table.array import ArrayTable
from hma.errors import UserError, reason
from hma.targets import YesNo

CHANNELS = (1, 3, 4)
HEADER = 10_000
"""Most bytes of the description of an array."""


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
    """Return the arrays of an ``.npz`` that are wanted and there; the first has to be."""
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
    """Return the raw labels, of what kind they are and what they are called."""
    if y.ndim not in (1, 2) or len(y) != rows or (y.ndim == 2 and y.shape[1] < 1):
        raise UserError(
            f"y of {path} must hold one label for each of the {rows} rows of x, or one row of "
            f"labels, got shape {y.shape}"
        )
    columns = 1 if y.ndim == 1 else y.shape[1]
    kind = label_kind_for(aim, columns) if y.ndim == 1 or columns > 1 else YesNo.kind
    labels: list[Any] = [_text(value) for value in y.tolist()]
    missing = [place for place, label in enumerate(labels) if LABEL_KINDS[kind].missing(label)]
    if not skip_missing:
        expect_present(missing, rows, f"y of {path}")
    names = tuple(f"y{place}" for place in range(columns)) if y.ndim == 2 else ("y",)
    return {"labels": labels, "label_kind": kind, "label_names": names}


def _text(value: Any) -> Any:
    return tuple(map(label_text, value)) if isinstance(value, list) else label_text(value)


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
