"""Files that are either whole or not there, and files that one process holds at a time."""

import errno
import hashlib
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from filelock import FileLock, Timeout

from hma.errors import UserError

LOCK = ".lock"
UNFINISHED = ".writing-"
"""How the hidden folder begins that a file is written in, beside the file it will be."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class HeldError(Exception):
    """Another process holds the file."""


class FileError(UserError):
    """A file that cannot be used; says which, what is wrong and what to do."""


class MissingFileError(FileError):
    """A file that is not there."""


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Yield a path to write to; it becomes ``target`` if the block ends well, else it is removed.

    A crash, a full disk or an error inside the block leaves whatever ``target`` was before. The
    path lies in a hidden folder of its own, so that what a writer makes beside it goes with it;
    the folder of a killed writer is removed by :func:`remove_abandoned`. A file that is replaced
    keeps its permissions; those of a new one follow the umask.
    """
    with explain_write_errors(target):
        folder, lock = _make_folder(target.parent)
    try:
        temporary = folder / target.name
        with explain_write_errors(target, only=FULL):
            yield temporary
        with explain_write_errors(target):
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            like = target if target.is_file() else folder / LOCK
            temporary.chmod(stat.S_IMODE(like.stat().st_mode))
            temporary.replace(target)
    finally:
        lock.release()
        rmtree(folder, ignore_errors=True)


@contextmanager
def hold_lock(path: Path, *, wait: float = 0.0) -> Iterator[None]:
    """Hold ``path`` against every other process; raises :class:`HeldError` if one has it.

    The hold ends with the process, however it ends. What is locked is a file, made if needed and
    never removed, since two processes could then hold two files of one name.

    Args:
        path: A folder, which is held by a hidden file inside, or the lock file itself.
        wait: Seconds to wait for another process that has it.
    """
    file = path / LOCK if path.is_dir() else path
    lock = FileLock(file, timeout=wait)
    try:
        with explain_write_errors(file), _warn_without_locks(path):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(poll_interval=0.02)
            except Timeout as error:
                raise HeldError(str(path)) from error
        yield
    finally:
        lock.release()


@contextmanager
def explain_write_errors(path: Path, only: tuple[int, ...] | None = None) -> Iterator[None]:
    """Turn a failure to write ``path`` into one line that says why and what to do.

    Args:
        path: What is being written.
        only: Numbers of the errors that are meant; all if not given.
    """
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        remedy = "free some space" if error.errno in FULL else "see to that"
        raise FileError(
            f"cannot write {path}: {error.strerror or error}; everything written before is "
            f"intact: {remedy} and start again"
        ) from error


def expect_regular(path: Path, most_bytes: int | None = None) -> None:
    """Raise :class:`FileError` unless ``path`` is a plain file that may be read to its end.

    A named pipe or a device could keep a reader for ever, so this comes before the first byte.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"{str(path)!r} cannot be read: {why}") from error
    if stat.S_ISDIR(status.st_mode):
        raise FileError(f"{path} is a folder where a file is expected; name a file")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{path} is no regular file; name one that can be read to its end")
    if most_bytes is not None and status.st_size > most_bytes:
        raise FileError(f"{path} has {status.st_size} bytes, and at most {most_bytes} are read")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_empty(folder: Path) -> bool:
    """Tell whether a folder holds nothing but what locks and killed writers leave behind."""
    return all(path.name == LOCK or path.name.startswith(UNFINISHED) for path in folder.iterdir())


def remove_abandoned(parent: Path, *, below: bool = False) -> None:
    """Remove the hidden folders of writers that were killed: those that nobody holds.

    Args:
        parent: Where they lie.
        below: Look into every folder below, too.
    """
    found = []
    for at, folders, _ in os.walk(parent):
        found += [Path(at, name) for name in folders if name.startswith(UNFINISHED)]
        folders[:] = [name for name in folders if below and not name.startswith(UNFINISHED)]
    for folder in found:
        with suppress(OSError):
            folder.rmdir()  # killed before it had a lock; one with a lock is not empty
        lock = FileLock(folder / LOCK, timeout=0)
        with suppress(OSError, Timeout):
            (folder / LOCK).stat()
            with lock:
                rmtree(folder, ignore_errors=True)
            if os.name == "nt":  # where no file is removed that is open
                rmtree(folder, ignore_errors=True)


def _make_folder(parent: Path) -> tuple[Path, FileLock]:
    """Return a new hidden folder, held for as long as this process writes in it."""
    remove_abandoned(parent)
    while True:
        folder = Path(mkdtemp(dir=parent, prefix=UNFINISHED))
        lock_file = folder / LOCK
        lock = FileLock(lock_file, timeout=0)
        try:
            lock_file.touch()  # by the umask, which tells what a new file may be
            with _warn_without_locks(folder):
                lock.acquire()
            lock_file.stat()
        except (FileNotFoundError, FileExistsError, Timeout):  # another took it for abandoned
            lock.release()
            rmtree(folder, ignore_errors=True)
        else:
            return folder, lock


@contextmanager
def _warn_without_locks(path: Path) -> Iterator[None]:
    """Warn, and go on, where the file system has no locks."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        warnings.warn(
            f"{path} cannot be locked ({error.strerror}): see to it that no other process works "
            "there",
            stacklevel=5,
        )
