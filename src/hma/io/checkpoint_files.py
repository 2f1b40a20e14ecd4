"""The folder of a checkpoint: held while it is saved; its weights, and what describes them."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hma.errors import UserError
from hma.io.files import FileError, HeldError, MissingFileError, file_sha256, held, no_lost_writes
from hma.io.json_files import RESTORE, checked, read_json
from hma.io.tensor_files import read_tensors, write_tensors

FORMAT = 2
WAIT = 600.0
"""Seconds that a save waits for another one to the same folder."""


class CheckpointError(UserError):
    """A checkpoint that cannot be used; says which file, what is wrong and what to do."""


@contextmanager
def saving(folder: Path, names: Iterable[str], overwrite: bool) -> Iterator[None]:
    """Make ``folder`` and hold it against other saves; refuse to replace what is there unasked."""
    with no_lost_writes(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with held(folder, wait=WAIT):
            there = [folder / name for name in names if (folder / name).exists()]
            if there and not overwrite:
                raise FileExistsError(
                    f"{there[0]} exists already; pass overwrite=True to replace it or choose "
                    "another folder"
                )
            yield
    except HeldError as error:
        raise CheckpointError(
            f"another process has been saving to {folder} for {WAIT:.0f} s; end it, or choose "
            "another folder"
        ) from error


def write_weights(
    state: Mapping[str, Tensor], folder: Path, number: str, stored: Path | None
) -> dict[str, str]:
    """Write weights, or link those that are on disk already; return each file's hash by name."""
    files = {}
    held = {} if stored is None else read_tensors(stored)
    if stored is not None and all(_same(state.get(name), own) for name, own in held.items()):
        name = f"model-{number}-stored.safetensors"
        try:
            os.link(stored, folder / name)
        except OSError:  # a file system without links
            shutil.copyfile(stored, folder / name)
        files[name] = file_sha256(folder / name)
        state = {name: value for name, value in state.items() if name not in held}
    if state:
        name = f"model-{number}.safetensors"
        files[name] = write_tensors(folder / name, state)
    return files


def _same(value: Tensor | None, other: Tensor) -> bool:
    return value is not None and value.dtype == other.dtype and torch.equal(value.cpu(), other)


def remove(paths: Iterable[Path]) -> None:
    """Remove files that may be gone already."""
    for path in paths:
        path.unlink(missing_ok=True)


def read_weights(files: Mapping[Path, str | None]) -> dict[str, Tensor]:
    """Return the tensors of all files together; each is held to its hash, where one is given."""
    tensors: dict[str, Tensor] = {}
    for path, sha256 in files.items():
        tensors |= read_tensors(path, sha256=sha256)
    return tensors


def read_description(
    path: Path, shape: Mapping[str, Any], *, absent: str, sealed: bool = False
) -> dict[str, Any]:
    """Return what the JSON file of a checkpoint says, or raise :class:`CheckpointError`.

    Args:
        path: The file.
        shape: What it must hold, see :func:`hma.io.json_files.checked`.
        absent: What to say where the file is not there.
        sealed: The file was written sealed.
    """
    try:
        description: dict[str, Any] = read_json(path, {"format": int}, sealed=sealed)
        if description["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {description['format']}, this hma reads format {FORMAT}; "
                "install the version that wrote it"
            )
        return checked(description, shape)  # type: ignore[no-any-return]
    except MissingFileError as error:
        raise CheckpointError(absent) from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; {RESTORE}") from error
