"""What is written of a version of a memory: who changed what, and what it did."""

from dataclasses import dataclass
from typing import Literal

Verb = Literal["remember", "forget", "restore", "damaged"]
"""What made a version; of one that cannot be read, that."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What rows come to, before and after a change.

    Args:
        rows: Which rows, in words.
        count: How many.
        metric: Name of the metric.
        before, after: Its values; None where there is none.
        how: How these rows are answered, in words.
    """

    rows: str
    count: int
    metric: str
    before: float | None
    after: float | None
    how: str


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a memory, and the change that led to it.

    Args:
        number: Its number, from 1 on.
        parent: The one it changes.
        time: When, in UTC.
        verb: What was done.
        restored: The version that answers again, of a ``"restore"``.
        source: Where rows came from, or what was to be forgotten, in words.
        fingerprint: Of the source of rows that were added.
        added, forgotten: How many rows came and went.
        classes: Names of classes that came.
        rows: Rows in the memory afterwards.
        scores: What the change did.
        remains: What of forgotten rows is left in weights, in words.
        note: What the writer had to say.
        weights: Hash of the trained weights that all of this is about.
        next_id: Sample id of the next row to come.
    """

    number: int
    parent: int
    time: str
    verb: Verb
    restored: int | None = None
    source: str = ""
    fingerprint: str = ""
    added: int = 0
    forgotten: int = 0
    classes: tuple[str, ...] = ()
    rows: int = 0
    scores: tuple[Score, ...] = ()
    remains: str = ""
    note: str = ""
    weights: str | None = None
    next_id: int = 0
