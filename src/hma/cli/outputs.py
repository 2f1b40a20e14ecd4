"""Where a command may write: looked at before any work is done."""

import os
from collections.abc import Sequence
from pathlib import Path

from hma.errors import UserError


def output_file(path: Path, *, overwrite: bool = False, endings: Sequence[str] = ()) -> Path:
    """Return ``path`` if a file can be written there, its folder made where it is missing.

    Args:
        path: What the user gave as ``--output``.
        overwrite: Whether a file that is there may be replaced.
        endings: How its name may end; anything if empty.
    """
    path = path.expanduser()
    if endings and not path.name.lower().endswith(tuple(endings)):
        raise UserError(f"--output must end in {' or '.join(endings)}, got {path}")
    if path.is_dir():
        raise UserError(f"--output must name a file, got the folder {path}; add a name to it")
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"{path} exists already; pass --overwrite or another --output")
    output_folder(path.parent).mkdir(parents=True, exist_ok=True)
    return path


def output_folder(path: Path) -> Path:
    """Return ``path`` if a folder is there or can be made."""
    path = path.expanduser()
    there = next(part for part in (path, *path.absolute().parents) if os.path.lexists(part))
    if not there.is_dir():
        raise UserError(f"{path} cannot be a folder: a file is in the way; give another --output")
    return path
