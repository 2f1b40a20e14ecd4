"""MNIST from its four idx files, in the layout of torchvision."""

import gzip
import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.data.image.array import ArrayImages
from hma.data.labels import encode
from hma.data.location import data_folder, fetch, missing_data
from hma.data.sets.digits import DIGITS, few
from hma.data.sets.named_set import Asked, NamedSet
from hma.data.task_from_source import Prepared, prepare_splits
from hma.errors import UserError

ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
"""Names, and the MD5 of the compressed files."""
TRAIN = 60_000


def mnist_images(data_root: Path | None = None, *, download: bool = False) -> tuple[Tensor, Tensor]:
    """Return all images ``(70000, 28, 28)`` as bytes and their digits; test images come last."""
    folder = data_folder(data_root) / "MNIST" / "raw"
    arrays = [_read(folder, name, download=download) for name in FILES]
    images = torch.from_numpy(np.concatenate([arrays[0], arrays[2]]))
    digits = torch.from_numpy(np.concatenate([arrays[1], arrays[3]]).astype(np.int64))
    if len(images) != len(digits):
        raise UserError(f"{folder} holds {len(images)} images but {len(digits)} labels")
    return images, digits


def mnist_source(data_root: Path | None = None, *, download: bool = False) -> ArrayImages:
    """Return MNIST as a source: 60,000 training images, then 10,000 test images."""
    images, digits = mnist_images(data_root, download=download)
    labels = [str(digit) for digit in digits.tolist()]
    return ArrayImages("mnist", images[:, None], labels, unit=True)


def read_idx(file: Path) -> NDArray[Any]:
    """Return the array of bytes in an idx file, compressed or not."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}; fetch it again") from error
    axes = content[3] if len(content) > 3 else 0
    start = 4 + 4 * axes
    shape = tuple(int.from_bytes(content[place : place + 4], "big") for place in range(4, start, 4))
    if content[:3] != b"\0\0\x08" or len(content) != start + prod(shape):
        raise UserError(f"{file} is not a whole idx file of bytes; fetch it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read(folder: Path, name: str, *, download: bool) -> NDArray[Any]:
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.exists() and not packed.exists():
        if not download:
            raise missing_data("MNIST", plain, ADDRESS)
        fetch(f"{ADDRESS}{packed.name}", packed, FILES[name])
    return read_idx(plain if plain.exists() else packed)


def _prepared(asked: Asked) -> Prepared:
    per_class = asked.number("per_class")
    source = mnist_source(asked.data_root, download=asked.download)
    order = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(asked.seed))
    places = {
        "train": few(order[:50_000], encode(source.labels or [], DIGITS), per_class).tolist(),
        "validation": order[50_000:].tolist(),
        "test": list(range(TRAIN, len(source))),
    }
    facts = {
        "split": "50,000 for training and 10,000 for validation by seed; MNIST's test images",
        "seed": asked.seed,
        "per_class": per_class,
    }
    return prepare_splits(
        source, places, classes=DIGITS, seed=asked.seed, facts=facts, options=asked.options
    )


SET = NamedSet(
    ("mnist", "mnist:N"),
    r"mnist(:(?P<per_class>\d{1,9}))?",
    _prepared,
    lambda asked: mnist_source(asked.data_root),
)
