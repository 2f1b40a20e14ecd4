"""Where data lies, how it is fetched, and a cache of tensors that take long to make."""

import hashlib
import os
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from torch import Tensor

from hma.errors import UserError
from hma.io.files import FileError, atomic_write, expect_regular
from hma.io.tensor_files import read_features, write_features

TIMEOUT = 60
Tensors = dict[str, Tensor]


class MissingDataError(UserError):
    """Data that has to be fetched first."""


def data_folder(given: Path | None = None) -> Path:
    """Return the folder of all data: the one given, else ``$HMA_DATA``, else the cache folder."""
    if given is not None:
        return Path(given).expanduser()
    named = os.environ.get("HMA_DATA")
    return Path(named).expanduser() if named else cache_folder()


def cache_folder() -> Path:
    """Return this platform's folder for files that can be fetched again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hma"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "hma" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hma"


def missing_data(what: str, looked_for: Path, address: str, near: str = "") -> MissingDataError:
    """Return the error for data that is not there.

    Args:
        what: Name of the data.
        looked_for: File or folder that should be there.
        address: Where it can be fetched from.
        near: A name that may have been meant.
    """
    guess = f" (did you mean {near!r}?)" if near else ""
    return MissingDataError(
        f"{what} is missing{guess}: looked for {looked_for}; put the data of {address} there, name "
        "another folder with --data-root or HMA_DATA, or pass --download to hma train "
        "(download=True to hma.data.builtin)"
    )


def fetch(address: str, target: Path, md5: str | None = None) -> None:
    """Download one file whole, or leave nothing behind.

    Args:
        address: Where from.
        target: Where to; its folder is made.
        md5: What the file must hash to, where it is known.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as temporary:
        try:
            with (
                urllib.request.urlopen(address, timeout=TIMEOUT) as answer,
                open(temporary, "wb") as file,
            ):
                copyfileobj(answer, file)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise UserError(
                f"{address} cannot be fetched: {error}; fetch it elsewhere and put it at {target}"
            ) from error
        if md5 is not None:
            with open(temporary, "rb") as file:
                digest = hashlib.file_digest(file, "md5").hexdigest()
            if digest != md5:
                raise UserError(
                    f"{address} is damaged: MD5 {digest} instead of {md5}; try again later"
                )


def fetch_archive(
    address: str, folder: Path, wanted: Callable[[Path], Path | None], last: Path
) -> None:
    """Download a zip archive and write some of its files into a folder, or none of them.

    Args:
        address: Where from.
        folder: Where to; it is made.
        wanted: Returns where in the folder a member goes, or None for one that is left out.
        last: File that is written last: a folder without it counts as missing.
    """
    with TemporaryDirectory() as temporary:
        packed = Path(temporary) / PurePosixPath(address).name
        fetch(address, packed)
        try:
            with ZipFile(packed) as file:
                places = {member: wanted(Path(member)) for member in file.namelist()}
                files = {place: file.read(m) for m, place in places.items() if place is not None}
        except BadZipFile as error:
            raise UserError(f"{address} is damaged: {error}; try again later") from error
    if last not in files:
        raise UserError(f"{address} does not hold {last}, but {sorted(places)}")
    for place in sorted(files, key=lambda place: place == last):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / place) as target:
            target.write_bytes(files[place])


def cache_tensors(
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


def read_cached(
    what: str,
    version: str,
    files: Mapping[str, Path],
    read: Callable[[], Tensors],
    *,
    least: int = 0,
) -> Tensors:
    """Read files, or the cache of what was read until one of them changes, if they are large.

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
    return cache_tensors(what, _files_key(version, files), read)


def _files_key(version: str, files: Mapping[str, Path]) -> str:
    """Return a hash of files by name, place, size and time of change, without reading them."""
    digest = hashlib.sha256(f"{version}\n".encode())
    for name, file in sorted(files.items()):
        status = file.stat()
        said = f"{name}\n{file.resolve()}\n{status.st_size} {status.st_mtime_ns}\n"
        digest.update(said.encode(errors="surrogateescape"))
    return digest.hexdigest()
