"""The training rows that predictions look at most, fit to be shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.model import MemoryModel
from hma.report.html import small_png
from hma.report.run.attention import Looked
from hma.report.run.groups import belongs, group_names, label_text
from hma.report.run.run_report import Attended, Example, HeldRow
from hma.report.statistics import Floats, Integers

EXAMPLES = 6
"""Training rows shown for each class."""
SHOWN_CLASSES = 16
"""Classes shown, those with most rows."""
LISTED = 60
"""Rows of the memory in its table."""
LONGEST = 160
"""Characters of a row's description."""


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """How to show the rows behind the sample ids that the model remembers.

    Args:
        describe: What the row at a place of the source is, as text.
        thumbnail: A PIL image of it, or None.
        places: Place in the source of each sample id; None where id and place are the same.
        where: Where the row at a place came from; None leaves that out.
        features: From sample ids ``(B,)`` to what the backbone makes of these rows now, on the
            model's device; None leaves staleness unknown.
    """

    describe: Callable[[int], str]
    thumbnail: Callable[[int], Any] | None = None
    places: Sequence[int] | None = None
    where: Callable[[int], str] | None = None
    features: Callable[[Tensor], Tensor] | None = None


def attended_of_class(
    looked: Looked, model: MemoryModel, names: Sequence[str], rows: TrainingRows
) -> tuple[Attended, ...]:
    """Return the training rows of each group that all test rows together look at most."""
    held, groups = _Held.of(model, names), group_names(model.target, names)
    order = np.argsort(-held.belongs.sum(axis=0), kind="stable")
    mass = held.summed(looked.on_queue.sum(axis=0))
    found = []
    for c in sorted(order[:SHOWN_CLASSES].tolist()):
        own = np.flatnonzero(held.belongs[:, c])
        best = own[np.argsort(-mass[own], kind="stable")[:EXAMPLES]]
        if len(best) and mass.sum() > 0:
            examples = tuple(held.example(i, mass[i], rows) for i in best.tolist())
            count = int(held.counts[own].sum())
            found.append(Attended(label=groups[c], rows=count, examples=examples))
    return tuple(found)


def attended_by_answer(
    looked: Looked, model: MemoryModel, names: Sequence[str], rows: TrainingRows
) -> tuple[Attended, ...]:
    """Return the training rows that the test rows of each answer look at most."""
    held, groups = _Held.of(model, names), group_names(model.target, names)
    order = np.argsort(-looked.answered, kind="stable")[:SHOWN_CLASSES]
    found = []
    for c in sorted(order.tolist()):
        mass = held.summed(looked.on_queue[c])
        best = np.argsort(-mass, kind="stable")[:EXAMPLES]
        if len(best) and mass.sum() > 0:
            examples = tuple(held.example(i, mass[i], rows) for i in best.tolist())
            count = int(looked.answered[c])
            found.append(Attended(label=groups[c], rows=count, examples=examples))
    return tuple(found)


def most_looked_at(
    looked: Looked, model: MemoryModel, names: Sequence[str], rows: TrainingRows
) -> tuple[HeldRow, ...]:
    """Return the rows of the memory that all test rows together look at most."""
    held = _Held.of(model, names)
    mass = held.summed(looked.on_queue.sum(axis=0))
    best = np.argsort(-mass, kind="stable")[:LISTED].tolist()
    return tuple(held.row(place, mass[place], rows) for place in best)


@dataclass(frozen=True)
class _Held:
    """The different samples in the queue; one that is there more than once counts once."""

    known: NDArray[np.bool_]
    """Queue rows whose sample id was given."""
    inverse: Integers
    ids: Integers
    belongs: NDArray[np.bool_]
    """Whether each sample belongs to each group, ``(K, C)``."""
    labels: tuple[str, ...]
    """What each sample is."""
    counts: Integers

    @classmethod
    def of(cls, model: MemoryModel, names: Sequence[str]) -> "_Held":
        memory = model.memory_state()
        every = memory.ids.cpu().numpy()
        known = every >= 0
        ids, first, inverse, counts = np.unique(
            every[known], return_index=True, return_inverse=True, return_counts=True
        )
        labels = memory.labels.cpu()[torch.from_numpy(known)][torch.from_numpy(first)]
        said = tuple(label_text(model.target, names, label) for label in labels.tolist())
        return cls(known, inverse, ids, belongs(model.target, labels).numpy(), said, counts)

    def summed(self, attention: Floats) -> Floats:
        """Return the part of the attention on the queue that each sample draws."""
        total = float(attention.sum()) or 1.0
        drawn = np.bincount(self.inverse, attention[self.known], minlength=len(self.ids))
        return np.asarray(drawn / total)

    def example(self, place: int, share: float, rows: TrainingRows) -> Example:
        """Return the sample at ``place`` as the page shows it."""
        source = _place_of(int(self.ids[place]), rows)
        return Example(
            text=_shortened(rows.describe(source)),
            picture=None if rows.thumbnail is None else small_png(rows.thumbnail(source)),
            label=self.labels[place] or "unknown",
            share=float(share),
        )

    def row(self, place: int, share: float, rows: TrainingRows) -> HeldRow:
        """Return the sample at ``place`` as a line of a table."""
        sample = int(self.ids[place])
        source = _place_of(sample, rows)
        return HeldRow(
            id=sample,
            label=self.labels[place] or "unknown",
            share=float(share),
            text=_shortened(rows.describe(source)),
            where="" if rows.where is None else rows.where(source),
        )


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _place_of(sample: int, rows: TrainingRows) -> int:
    if rows.places is None:
        return sample
    if sample >= len(rows.places):
        raise ValueError(
            f"places must name a row for each sample id, got {len(rows.places)} places and the "
            f"id {sample}; the places are those of another run"
        )
    return rows.places[sample]
