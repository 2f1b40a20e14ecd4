"""One clear error for anything that cannot be written, with everything written before intact."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from hma.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def no_lost_writes(path: Path) -> Iterator[None]:
    """Turn a failure to write ``path`` into one line that says why and what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = "free some space" if _is_full(error) else "see to that"
        raise UserError(
            f"cannot write {path}: {why}; everything written before is intact: {remedy} and start "
            "the same run again to continue"
        ) from error


def _is_full(error: OSError | SafetensorError) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL
    return any(f"os error {number}" in str(error) for number in FULL)
