"""Rows that the memory holds: which draw most attention, and which versions it had."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from hma.report.html import fill, small_png
from hma.report.run_facts import RunFacts, TrainingRows
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
class StoredRow:
    """A row that the memory holds.

    Args:
        id: Its sample id.
        label: Its class.
        share: Part of the attention on the queue that it draws.
        text: What it is: a file name, a text, a row's values.
        where: Where it came from.
        picture: PNG of an image row that is shown as an example.
    """

    id: int
    label: str
    share: float
    text: str
    where: str
    picture: bytes | None = None


class Attended(NamedTuple):
    """The training rows of one class, or for one answer, that are looked at most.

    Args:
        label: The class.
        rows: Rows of that class in the queue, or test rows answered so.
        examples: The most attended first.
    """

    label: str
    rows: int
    examples: tuple[StoredRow, ...]


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

    held: tuple[StoredRow, ...]
    changes: tuple[MemoryChange, ...]


class Examples(NamedTuple):
    """Training rows that predictions look at most: of each group, and for each answer."""

    by_class: tuple[Attended, ...]
    by_answer: tuple[Attended, ...]


def gather(facts: RunFacts) -> StoredRows | None:
    """Return the rows of the memory that all test rows together look at most, and its versions."""
    rows: tuple[StoredRow, ...] = ()
    if facts.traces and facts.training_rows is not None:
        held = _Held.of(facts)
        mass = held.summed(facts.traces[0].on_queue.sum(axis=0))
        best = np.argsort(-mass, kind="stable")[:LISTED].tolist()
        rows = tuple(held.row(place, mass[place]) for place in best)
    found = StoredRows(rows, tuple(facts.more.get("changes", ())))
    return found if any(found) else None


def gather_examples(facts: RunFacts) -> Examples | None:
    """Return the training rows that are looked at most: of each group, and for each answer."""
    if not facts.traces or facts.training_rows is None:
        return None
    looked, held = facts.traces[0], _Held.of(facts)
    in_queue = held.counts @ held.belongs  # (C,)
    every = held.summed(looked.on_queue.sum(axis=0))
    own = [np.where(belongs, every, 0.0) for belongs in held.belongs.T]
    answers = [held.summed(attention) for attention in looked.on_queue]
    frequent = np.argsort(-held.belongs.sum(axis=0), kind="stable")
    answered = np.argsort(-looked.answered, kind="stable")
    found = Examples(
        _attended(held, facts.groups, frequent, own, in_queue),
        _attended(held, facts.groups, answered, answers, looked.answered),
    )
    return found if found.by_class else None


def _attended(
    held: "_Held",
    groups: Sequence[str],
    order: Integers,
    shares: Sequence[Floats],
    counts: Floats | Integers,
) -> tuple[Attended, ...]:
    """Return the rows of the first groups of ``order`` that have most of their ``shares``."""
    found = []
    for c in sorted(order[:SHOWN_CLASSES].tolist()):
        best = [i for i in np.argsort(-shares[c], kind="stable")[:SHOWN] if shares[c][i] > 0]
        if best:
            examples = tuple(held.row(i, shares[c][i], pictured=True) for i in best)
            found.append(Attended(groups[c], int(counts[c]), examples))
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

    shown: TrainingRows
    """How to show them."""

    @classmethod
    def of(cls, facts: RunFacts) -> "_Held":
        assert facts.training_rows is not None
        memory, target = facts.model.memory_state(), facts.model.target
        every = memory.ids.cpu().numpy()
        known = every >= 0
        ids, first, inverse, counts = np.unique(
            every[known], return_index=True, return_inverse=True, return_counts=True
        )
        labels = memory.labels.cpu()[torch.from_numpy(known)][torch.from_numpy(first)]
        said = tuple(target.label_text(facts.classes, label) for label in labels.tolist())
        member = target.belongs(labels).numpy()
        return cls(known, inverse, ids, member, said, counts, facts.training_rows)

    def summed(self, attention: Floats) -> Floats:
        """Return the part of the attention on the queue that each sample draws."""
        total = float(attention.sum()) or 1.0
        drawn = np.bincount(self.inverse, attention[self.known], minlength=len(self.ids))
        return np.asarray(drawn / total)

    def row(self, place: int, share: float, *, pictured: bool = False) -> StoredRow:
        """Return the sample at ``place`` as the page shows it."""
        sample, rows = int(self.ids[place]), self.shown
        source = rows.place_of(sample)
        picture = rows.thumbnail(source) if pictured and rows.thumbnail is not None else None
        return StoredRow(
            id=sample,
            label=self.labels[place] or "unknown",
            share=float(share),
            text=_shortened(rows.describe(source)),
            where="" if rows.where is None else rows.where(source),
            picture=small_png(picture),
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
