"""Rows in order, batch by batch, for predictions over inputs of any length."""

from collections.abc import Iterator
from pathlib import Path

from hma.data.preparation import Preparation
from hma.data.source import Source
from hma.data.sources import open_source
from hma.data.task import Batch
from hma.errors import UserError


def stream(
    preparation: Preparation, source: Source | str | Path, batch_size: int
) -> Iterator[Batch]:
    """Yield all rows of a source, prepared; memory does not grow with a CSV, JSONL or folder.

    The ids of a batch are rows of the source; ``y`` is -1 where the source has no labels.

    Args:
        preparation: What was fitted at training.
        source: A source, or what :func:`open_source` takes.
        batch_size: Rows per batch; the last may be smaller.
    """
    if batch_size < 1:
        raise UserError(f"batch_size must be at least 1, got {batch_size}")
    opened = open_source(source) if isinstance(source, str | Path) else source
    return preparation.stream(opened, batch_size)
