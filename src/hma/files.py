"""Files that are either whole or not there, and files that one process holds at a time."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


class HeldError(Exception):
    """Another process holds the file."""


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield a path to write to; it becomes ``target`` if the block ends well, else it is removed.

    A crash, a full disk or an error inside the block leaves whatever ``target`` was before.
    The path lies in a folder of its own, so that what a writer makes beside it goes with it.
    """
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        temporary = Path(folder) / target.name
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(target)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold ``path`` against every other process; raises :class:`HeldError` if one has it.

    The hold ends with the process, however it ends. A folder stays; a file is made, and removed
    at a good end. Where files cannot be locked there is a warning, and on Windows no hold.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # not on Windows
        yield
        return
    folder = path.is_dir()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HeldError(str(path)) from error
        except OSError as error:
            warnings.warn(
                f"{path} cannot be locked ({error.strerror}): see to it that no other process "
                "works there",
                stacklevel=4,
            )
        yield
        if not folder:
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)
