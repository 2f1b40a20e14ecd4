"""Files that are either whole or not there, and files that one process holds at a time."""

import os
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

    The hold ends with the process, however it ends. The file is made, and removed at a good end.
    """
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HeldError(str(path)) from error
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)
