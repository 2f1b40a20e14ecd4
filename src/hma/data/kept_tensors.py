"""What takes long to make is kept in the cache folder, and made again when it is lost."""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from hma.data.location import cache_folder
from hma.io.feature_file import read_features, write_features
from hma.io.files import FileError, expect_regular

Tensors = dict[str, Tensor]


def kept_tensors(
    what: str, key: str, make: Callable[[], Tensors], *, folder: Path | None = None
) -> Tensors:
    """Return what ``make`` returns, from the cache where it is kept.

    A damaged file is made again, with a warning; so is one that cannot be written, every time.

    Args:
        what: What is kept, a word in the plural; names the file and its folder.
        key: Hash of all that it is made from.
        make: Makes it.
        folder: Folder of the cache; that of this platform if not given. Data may be read-only.
    """
    place = (cache_folder() if folder is None else folder) / what
    kept = read_features(place, key, {}, what=what)
    if kept is not None:
        return kept
    made = make()
    try:
        write_features(place, key, made, what=what)
    except FileError as error:
        warnings.warn(f"{what} are made again next time: {error}", stacklevel=2)
    return made


def read_or_kept(
    what: str,
    version: str,
    files: Mapping[str, Path],
    read: Callable[[], Tensors],
    *,
    least: int = 0,
) -> Tensors:
    """Return what files say: from the cache until one of them changes, if they are large enough.

    Args:
        what: What is kept, a word in the plural.
        version: Of what is made from the files; another one is made anew.
        files: Files by name, all there.
        read: Reads them.
        least: Bytes of all files from which on it is kept.
    """
    for file in files.values():
        expect_regular(file)
    if sum(file.stat().st_size for file in files.values()) < least:
        return read()
    return kept_tensors(what, _files_key(version, files), read)


def _files_key(version: str, files: Mapping[str, Path]) -> str:
    """Return a hash of files by name, place, size and time of change, without reading them."""
    digest = hashlib.sha256(f"{version}\n".encode())
    for name, file in sorted(files.items()):
        status = file.stat()
        said = f"{name}\n{file.resolve()}\n{status.st_size} {status.st_mtime_ns}\n"
        digest.update(said.encode(errors="surrogateescape"))
    return digest.hexdigest()
