"""A file that keeps what a network made of rows: named by a hash, checked, or made again."""

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.io.files import FileError, no_lost_writes
from hma.io.tensor_files import differing, read_about, read_shapes, read_tensors, write_tensors

FORMAT = "1"
FEATURES = "features"
Tensors = dict[str, Tensor]


def write_features(folder: Path, key: str, tensors: Tensors, *, what: str = FEATURES) -> None:
    """Keep features, or ``what`` else was made, in ``folder``, made if needed."""
    path = _file(folder, key, what)
    with no_lost_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    about = {"format": FORMAT, "key": key, "sha256": _sha256(tensors)}
    write_tensors(path, tensors, about=about)


def read_features(
    folder: Path, key: str, shapes: Mapping[str, tuple[int, ...]], *, what: str = FEATURES
) -> Tensors | None:
    """Return the features kept under ``key``; None where there are none, or damaged ones.

    Args:
        folder: Where :func:`write_features` put them.
        key: Hash of what they were made from.
        shapes: Of some of the tensors, which must be there.
        what: What is kept; begins the name of the file.
    """
    path = _file(folder, key, what)
    if not path.exists():
        return None
    try:
        return _checked(path, key, shapes, f"its {what} are made again")
    except FileError as error:
        warnings.warn(str(error), stacklevel=3)
        return None


def add(digest: Any, name: str, value: Tensor) -> None:
    """Add a tensor with its name, number format and shape to a hash."""
    plain = value.detach().cpu().contiguous()
    digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
    digest.update(memoryview(plain.view(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]


def _file(folder: Path, key: str, what: str) -> Path:
    return folder / f"{what}-{key[:32]}.safetensors"


def _checked(path: Path, key: str, wanted: Mapping[str, tuple[int, ...]], again: str) -> Tensors:
    shapes, about = read_shapes(path, remedy=again), read_about(path, remedy=again)
    problems = differing({name: shapes[name] for name in wanted if name in shapes}, wanted)
    if problems or about.get("key") != key:
        raise FileError(f"{path} is damaged: it holds others; {again}")
    tensors = read_tensors(path, remedy=again)
    if about.get("sha256") != _sha256(tensors):
        raise FileError(f"{path} is damaged: its content does not match its hash; {again}")
    return tensors


def _sha256(tensors: Tensors) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        add(digest, name, tensors[name])
    return digest.hexdigest()
