"""Files that are either whole or not there: written beside their place, then renamed into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


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
