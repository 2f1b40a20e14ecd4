"""Our tensor files: safetensors, written whole, and read only if they are what is expected."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hma.errors import UserError
from hma.files import FileError, expect_regular, written_whole
from hma.json_files import RESTORE

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
    with written_whole(path) as temporary:
        try:
            save_file(plain, temporary, None if about is None else dict(about))
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))
            raise OSError(int(number[1]) if number else 0, str(error)) from error
        with open(temporary, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def read_tensors(
    path: Path,
    *,
    sha256: str | None = None,
    expect: Mapping[str, tuple[int, ...]] | None = None,
    remedy: str = RESTORE,
) -> dict[str, Tensor]:
    """Read a tensor file, or raise :class:`hma.files.FileError`.

    Hash, names and shapes are looked at before memory is taken for any tensor.

    Args:
        path: A regular file; a pipe or a device is not touched.
        sha256: Its recorded hash, where there is one.
        expect: The names it must hold, and their shapes.
        remedy: What the reader of an error should do.
    """
    shapes = read_shapes(path, sha256=sha256, remedy=remedy)
    if expect is not None and (problems := differing(shapes, expect)):
        raise FileError(f"{path} does not fit: {'; '.join(problems[:3])}; {remedy}")
    with _opened(path, remedy) as file:
        return {name: file.get_tensor(name) for name in shapes}


def read_shapes(path: Path, *, sha256: str | None = None, remedy: str = RESTORE) -> Shapes:
    """Return the names and shapes in a tensor file, checked by hash; no tensor is read."""
    expect_regular(path)
    if sha256 is not None and _sha256(path, remedy) != sha256:
        raise FileError(
            f"{path} is damaged: its content does not match its recorded hash; {remedy}"
        )
    with _opened(path, remedy) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def read_about(path: Path, *, remedy: str = RESTORE) -> dict[str, str]:
    """Return the text in the header of a tensor file."""
    expect_regular(path)
    with _opened(path, remedy) as file:
        return file.metadata() or {}


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shape of each tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def differing(
    found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Say where the names and shapes of a file are not those that are wanted, a line for each."""
    return [
        *(f"{name} is missing from the file" for name in wanted if name not in found),
        *(f"{name} is not part of this model" for name in found if name not in wanted),
        *(
            f"{name} has shape {found[name]} in the file, {wanted[name]} in this model"
            for name in wanted
            if name in found and found[name] != wanted[name]
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
def _opened(path: Path, remedy: str) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise FileError(f"{path} is damaged: {why}; {remedy}") from error


def _sha256(path: Path, remedy: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}; {remedy}") from error
