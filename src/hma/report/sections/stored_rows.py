"""Rows that the memory holds: which draw most attention, and which versions it had."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from hma.model import MemoryModel
from hma.report.groups import belongs, group_names, label_text
from hma.report.html import fill, small_png
from hma.report.run_facts import Looked, RunFacts, TrainingRows
from hma.report.run_report import RunReport, Section
from hma.report.sections.attention import same_class
from hma.report.statistics import Floats, Integers

SHOWN = 6
"""Training rows shown for each class."""
SHOWN_CLASSES = 16
"""Classes shown, those with most rows."""
LISTED = 60
"""Rows of the memory in its table."""
LONGEST = 160
"""Characters of a row's description."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A training row that predictions look at.

    Args:
        text: What it is: a file name, a text, a row's values.
        picture: PNG of an image row.
        label: Its class.
        share: Part of the attention on the queue that it draws.
    """

    text: str
    picture: bytes | None
    label: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Attended:
    """The training rows of one class, or for one answer, that are looked at most.

    Args:
        label: The class.
        rows: Rows of that class in the queue, or test rows answered so.
        examples: The most attended first.
    """

    label: str
    rows: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class HeldRow:
    """A row that the memory holds.

    Args:
        id: Its sample id.
        label: Its class.
        share: Part of the attention on the queue that it draws.
        text: What it is.
        where: Where it came from.
    """

    id: int
    label: str
    share: float
    text: str
    where: str


@dataclass(frozen=True, kw_only=True)
class MemoryChange:
    """A version of the memory.

    Args:
        number: Its number.
        time: When.
        what: What was done.
        rows: Rows in the memory afterwards.
        scores: What it did, a line for each kind of rows.
        remains: What of forgotten rows is left in weights.
    """

    number: int
    time: str
    what: str
    rows: int
    scores: tuple[str, ...]
    remains: str


class StoredRows(NamedTuple):
    """What the memory holds.

    Args:
        held: Rows of the memory, those that draw most attention first.
        changes: Every version of the memory after training.
    """

    held: tuple[HeldRow, ...]
    changes: tuple[MemoryChange, ...]


class Examples(NamedTuple):
    """Training rows that predictions look at most: of each group, and for each answer."""

    by_class: tuple[Attended, ...]
    by_answer: tuple[Attended, ...]


def gather(facts: RunFacts) -> StoredRows | None:
    """Return the rows of the memory that all test rows together look at most, and its versions."""
    rows: tuple[HeldRow, ...] = ()
    if facts.looked and facts.training_rows is not None:
        held = _Held.of(facts.model, facts.classes)
        mass = held.summed(facts.looked[0].on_queue.sum(axis=0))
        best = np.argsort(-mass, kind="stable")[:LISTED].tolist()
        rows = tuple(held.row(place, mass[place], facts.training_rows) for place in best)
    found = StoredRows(rows, tuple(facts.more.get("changes", ())))
    return found if any(found) else None


def gather_examples(facts: RunFacts) -> Examples | None:
    """Return the most attended training rows, of each group and for each answer."""
    if not facts.looked or facts.training_rows is None:
        return None
    given = facts.looked[0], facts.model, facts.classes, facts.training_rows
    found = Examples(attended_of_class(*given), attended_by_answer(*given))
    return found if found.by_class else None


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
        best = own[np.argsort(-mass[own], kind="stable")[:SHOWN]]
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
        best = np.argsort(-mass, kind="stable")[:SHOWN]
        if len(best) and mass.sum() > 0:
            examples = tuple(held.example(i, mass[i], rows) for i in best.tolist())
            count = int(looked.answered[c])
            found.append(Attended(label=groups[c], rows=count, examples=examples))
    return tuple(found)


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
        source = rows.place_of(int(self.ids[place]))
        return Example(
            text=_shortened(rows.describe(source)),
            picture=None if rows.thumbnail is None else small_png(rows.thumbnail(source)),
            label=self.labels[place] or "unknown",
            share=float(share),
        )

    def row(self, place: int, share: float, rows: TrainingRows) -> HeldRow:
        """Return the sample at ``place`` as a line of a table."""
        sample = int(self.ids[place])
        source = rows.place_of(sample)
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


def draw(report: RunReport, found: StoredRows) -> Markup:
    """Draw the versions of the memory, and a table of its rows."""
    attention = report.parts.get("attention")
    return fill(
        "rows",
        report=report,
        found=found,
        stored=_stored(report),
        asked=attention[0].rows if attention else 0,
    )


def draw_examples(report: RunReport, found: Examples) -> Markup:
    """Draw the examples, two panels to switch between."""
    attention = report.parts["attention"]
    sentences = same_class(attention[0], report.group)[:1]
    return fill("examples", report=report, found=found, stored=_stored(report), sentences=sentences)


def _stored(report: RunReport) -> int:
    memory = report.parts.get("memory")
    return memory.queue.rows if memory and memory.queue else 0


SECTION = Section("rows", "Rows", "What the memory holds", gather, draw)
EXAMPLES = Section(
    "examples", "Examples", "Most attended training examples", gather_examples, draw_examples
)
