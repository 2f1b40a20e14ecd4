"""Rows on their way into a run's memory: looked at, encoded, told from those it holds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hma.data import Preparation, Source, Split
from hma.data.content_hashes import split_hashes
from hma.data.label_kinds import LABEL_KINDS
from hma.data.labels import class_names, listed, whole
from hma.errors import UserError
from hma.memory.keyed_rows import KeyedRows
from hma.model import MemoryModel
from hma.runs.folder import ENCODED
from hma.runs.memory_versions import Change
from hma.runs.remembered import cells_of, kept_picture
from hma.runs.taught_rows import TaughtRows
from hma.targets import Classes
from hma.training import Progress, counted

NEAREST = 8
"""Stored rows with its label that a new one is compared with."""
PAIRS = 20_000_000


def new_classes_of(
    preparation: Preparation, model: MemoryModel, raw: Sequence[Any], allowed: bool, where: str
) -> tuple[str, ...]:
    """Return the classes among raw labels that are not known yet, if they are to be let in.

    Args:
        preparation: Knows the others.
        model: What is to answer with them.
        raw: Labels as they are written.
        allowed: Whether new classes may come.
        where: What holds the labels, for messages.
    """
    if not isinstance(preparation.target, Classes):
        if allowed:
            raise UserError(
                "--new-classes is for rows with one class each, and this run learned labels of "
                f"the kind {preparation.target.kind!r}; leave it out"
            )
        return ()
    known = {*preparation.classes, *map(whole, preparation.classes)}
    strange = [label for label in raw if not known & {label, whole(label)}]
    names = class_names(strange)
    if strange and not allowed:
        raise UserError(
            f"{where} holds {listed(names)} in {len(strange)} of {len(raw)} rows, which this run "
            f"does not know as a class; pass --new-classes to teach it. Known are "
            f"{listed(preparation.classes)}"
        )
    if names:
        model.expect_growing()
    return names


def rows_of_source(
    preparation: Preparation,
    model: MemoryModel,
    source: Source,
    places: Sequence[int],
    progress: Progress | None,
) -> TaughtRows:
    """Return rows of a source as the memory keeps them; :func:`change_by` gives them their ids."""
    split = preparation.split(source, places)
    return TaughtRows(
        features=encoded_rows(model, split, progress),
        labels=preparation.target.checked(split.labels, len(places)),
        ids=torch.arange(len(places)),
        hashes=split_hashes(split),
        what=tuple(source.describe_all(places)),
        where=(source.name,) * len(places),
        pictures=tuple(kept_picture(source.thumbnail(place)) for place in places),
        cells=cells_of(source, places),
    )


@torch.no_grad()
def encoded_rows(model: MemoryModel, split: Split, progress: Progress | None) -> Tensor:
    """Return the features of rows as the memory stores them, ``(N, F)``."""
    parts, done = [], 0
    with counted(progress, "encoding") as tick, model.reading():
        for places in torch.split(torch.arange(len(split)), ENCODED):
            batch = split.batch(places)
            made = batch.features
            parts.append(model.encode_for_memory(batch.x) if made is None else made)
            done += len(places)
            tick(done, len(split))
    return torch.cat(parts)


def encoded_labels(preparation: Preparation, raw: Sequence[Any], where: str) -> Tensor:
    """Return raw labels as the memory stores them."""
    target = preparation.target
    y = LABEL_KINDS[target.kind].encoded(raw, preparation.classes, where)
    return target.checked(y, len(raw))


def change_by(
    store: KeyedRows, rows: TaughtRows, names: tuple[str, ...], where: str, first_id: int
) -> Change:
    """Return the change that teaches rows: without those that are held, or cannot be stored.

    Args:
        store: What the memory holds.
        rows: What it is taught.
        names: Classes that are new.
        where: Where the rows came from, for messages.
        first_id: Sample id of the first row that is stored; the others follow.
    """
    finite = rows.features.isfinite().all(dim=1)
    if not bool(finite.all()):
        raise UserError(
            f"{int((~finite).sum())} of {len(finite)} rows of {where} hold NaN or infinity once "
            "they are encoded; correct them"
        )
    features, labels = rows.features.to(store.features), rows.labels.to(store.labels)
    rows = replace(rows, features=features, labels=labels)
    new = torch.nonzero(not_held(store, rows))[:, 0]
    if not len(new):
        raise UserError(
            f"the memory holds all {len(rows)} rows of {where} already; nothing was changed"
        )
    ids = torch.arange(first_id, first_id + len(new))
    return Change(rows=replace(rows.at(new), ids=ids), classes=names)


@torch.no_grad()
def not_held(store: KeyedRows, rows: TaughtRows) -> Tensor:
    """Return which rows are not in the memory with the same label, ``(N,)``."""
    held = store.rows()
    new = torch.ones(len(rows), dtype=torch.bool)
    if not len(held.ids):
        return new
    for some in torch.split(torch.arange(len(rows)), max(1, PAIRS // held.labels.numel())):
        features, labels = rows.features[some], rows.labels[some]
        same = _close(held.labels[None], labels[:, None])  # (B, M), or (B, M, T)
        same = same if same.dim() == 2 else same.all(dim=-1)
        apart = torch.cdist(features, held.features).masked_fill(~same, torch.inf)  # (B, M)
        near = apart.topk(min(NEAREST, len(held.ids)), largest=False).indices  # (B, K)
        alike = _close(held.features[near], features[:, None]).all(dim=-1)
        new[some] = ~(alike & same.gather(1, near)).any(dim=1)
    return new


def _close(one: Tensor, other: Tensor) -> Tensor:
    if not one.is_floating_point():
        return one == other
    return torch.isclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)
