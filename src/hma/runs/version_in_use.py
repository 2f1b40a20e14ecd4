"""What a version of the memory makes of a trained run: its rows stored, its classes known."""

from dataclasses import replace

import torch

from hma.config import ConfigError
from hma.data import Preparation
from hma.errors import UserError
from hma.memory.keyed_rows import KeyedRows
from hma.memory.queue import MemoryRows
from hma.model import MemoryModel
from hma.runs.memory_versions import Living
from hma.targets import Classes, SoftClasses

WRITTEN_AT_ONCE = 1024


def keyed_rows(model: MemoryModel, what: str = "this run") -> KeyedRows:
    """Return the rows of a memory that can be taught and made to forget, or say what is needed."""
    try:
        return model.stored_samples("this")
    except ConfigError as error:
        raise UserError(
            f"{what} has no memory with a row for each sample, which is what can be taught, made "
            "to forget and looked into; train again with --memory vote"
        ) from error


@torch.no_grad()
def with_version(model: MemoryModel, living: Living) -> MemoryModel:
    """Return ``model``, as training left it, with the rows and classes of a version.

    It holds the rows that training stored, without the forgotten ones, then those it was taught:
    a row that was forgotten leaves no trace, as if it had never been stored.
    """
    if not living.chain:
        return model
    if living.classes:
        model.add_classes(len(living.classes))
    store, rows = keyed_rows(model), living.rows
    store.forget(living.forgotten)
    for some in torch.split(torch.arange(len(rows)), WRITTEN_AT_ONCE):
        store.write(MemoryRows(rows.features[some], rows.labels[some], rows.ids[some]))
    store.trim()
    model.reproject()
    return model


def with_classes(preparation: Preparation, names: tuple[str, ...]) -> Preparation:
    """Return a preparation that knows classes which were added after training."""
    if not names:
        return preparation
    target = preparation.target
    if not isinstance(target, Classes | SoftClasses):
        raise UserError(f"classes cannot be added to labels of the kind {target.kind!r}")
    known = {"count": target.count + len(names), "added": target.added + len(names)}
    return replace(
        preparation,
        classes=(*preparation.classes, *names),
        target=replace(target, **known),
    )
