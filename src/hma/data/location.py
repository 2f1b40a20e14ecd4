"""Where data is kept, what to say when it is not there, and how it is fetched when asked for."""

import hashlib
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from shutil import copyfileobj

from hma.errors import UserError
from hma.io.files import written_whole

TIMEOUT = 60


class MissingDataError(UserError):
    """Data that has to be fetched first."""


def data_folder(given: Path | None = None) -> Path:
    """Return the folder of all data: the one given, else ``$HMA_DATA``, else the cache folder."""
    if given is not None:
        return Path(given).expanduser()
    named = os.environ.get("HMA_DATA")
    return Path(named).expanduser() if named else cache_folder()


def cache_folder() -> Path:
    """Return where this platform keeps what can be fetched again."""
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
    with written_whole(target) as temporary:
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
