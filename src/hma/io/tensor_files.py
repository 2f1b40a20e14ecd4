"""Our tensor files: safetensors, written whole, and read only if they are what is expected."""

import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hma.errors import UserError, reason
from hma.io.files import (
    FileError,
    MissingFileError,
    atomic_write,
    expect_regular,
    explain_write_errors,
    file_sha256,
)
from hma.io.json_files import RESTORE

Shapes = dict[str, tuple[int, ...]]


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], *, about: Mapping[str, str] | None = None
) -> str:
    """Write tensors, whole or not at all, and return the hash of the file.

    Args:
        path: Where to.
        tensors: Any tensors; those that share storage are written once each.
        about: Text to keep in the header.
    """
    plain = _plain(tensors)
    with atomic_write(path) as temporary:
        try:
            save_file(plain, temporary, None if about is None else dict(about))
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))
            raise OSError(int(number[1]) if number else 0, str(error)) from error
        return file_sha256(temporary)


def read_tensors(
    path: Path,
    *,
    sha256: str | None = None,
    expect: Mapping[str, tuple[int, ...]] | None = None,
    remedy: str = RESTORE,
) -> dict[str, Tensor]:
    """Read a tensor file, or raise :class:`hma.io.files.FileError`.

    Hash, names and shapes are looked at before memory is taken for any tensor.

    Args:
        path: A regular file; a pipe or a device is not touched.
        sha256: Its recorded hash, where there is one.
        expect: The names it must hold, and their shapes.
        remedy: What the reader of an error should do.
    """
    shapes = read_shapes(path, sha256=sha256, remedy=remedy)
    if expect is not None and (problems := compare_shapes(shapes, expect)):
        raise FileError(f"{path} does not fit: {'; '.join(problems[:3])}; {remedy}")
    with _open(path, remedy) as file:
        return {name: file.get_tensor(name) for name in shapes}


def read_shapes(path: Path, *, sha256: str | None = None, remedy: str = RESTORE) -> Shapes:
    """Return the names and shapes in a tensor file, checked by hash; no tensor is read."""
    expect_regular(path)
    with _explain_read_errors(path, remedy):
        if sha256 is not None and file_sha256(path) != sha256:
            raise ValueError("its content does not match its recorded hash")
    with _open(path, remedy) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def read_about(path: Path, *, remedy: str = RESTORE) -> dict[str, str]:
    """Return the text in the header of a tensor file."""
    expect_regular(path)
    with _open(path, remedy) as file:
        return file.metadata() or {}


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shape of each tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def compare_shapes(
    stored: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Say where the names and shapes of a file are not those that are wanted, a line for each."""
    return [
        *(f"{name} is missing from the file" for name in wanted if name not in stored),
        *(f"{name} is not part of this model" for name in stored if name not in wanted),
        *(
            f"{name} has shape {stored[name]} in the file, {wanted[name]} in this model"
            for name in wanted
            if name in stored and stored[name] != wanted[name]
        ),
    ]


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors on the CPU, no two of them sharing storage, as safetensors wants them."""
    plain, seen = {}, set()
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise UserError(
                f"{name} holds a {type(tensor).__name__}, and only tensors can be saved without "
                "pickle; keep it in a buffer"
            )
        kept = tensor.detach().cpu().contiguous()
        storage = kept.untyped_storage().data_ptr()
        plain[name] = kept.clone() if storage in seen else kept
        seen.add(storage)
    return plain


@contextmanager
def _open(path: Path, remedy: str) -> Iterator[Any]:
    with _explain_read_errors(path, remedy), safe_open(path, framework="pt") as file:
        yield file


@contextmanager
def _explain_read_errors(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:  # removed since it was looked at
        raise MissingFileError(f"{path} does not exist") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise FileError(f"{path} is damaged: {reason(error)}; {remedy}") from error


# -------------------------------------------------------------------------------- files of features


FEATURE_FORMAT = "1"
FEATURES = "features"
Tensors = dict[str, Tensor]


def write_features(folder: Path, key: str, tensors: Tensors, *, what: str = FEATURES) -> None:
    """Keep features, or ``what`` else was made, in ``folder``, made if needed."""
    path = _file(folder, key, what)
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    about = {"format": FEATURE_FORMAT, "key": key, "sha256": _sha256(tensors)}
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
        return _read_if_whole(path, key, shapes, f"its {what} are made again")
    except FileError as error:
        warnings.warn(str(error), stacklevel=3)
        return None


def add_to_hash(digest: Any, name: str, value: Tensor) -> None:
    """Add a tensor with its name, number format and shape to a hash."""
    plain = value.detach().cpu().contiguous()
    digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
    digest.update(memoryview(plain.view(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]


def _file(folder: Path, key: str, what: str) -> Path:
    return folder / f"{what}-{key[:32]}.safetensors"


def _read_if_whole(
    path: Path, key: str, wanted: Mapping[str, tuple[int, ...]], again: str
) -> Tensors:
    shapes, about = read_shapes(path, remedy=again), read_about(path, remedy=again)
    problems = compare_shapes({name: shapes[name] for name in wanted if name in shapes}, wanted)
    if problems or about.get("key") != key:
        raise FileError(f"{path} is damaged: it holds others; {again}")
    tensors = read_tensors(path, remedy=again)
    if about.get("sha256") != _sha256(tensors):
        raise FileError(f"{path} is damaged: its content does not match its hash; {again}")
    return tensors


def _sha256(tensors: Tensors) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        add_to_hash(digest, name, tensors[name])
    return digest.hexdigest()
