"""What is written of a version of a memory: who changed what, and what it did."""

from dataclasses import dataclass, field
from typing import Literal

MOST_ID = 2**62
"""Largest sample id that is ever the next one."""
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
        held_out: Which rows of the run's validation and test splits are among those that were
            added: split -> places in it.
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
    held_out: dict[str, list[int]] = field(default_factory=dict)
    remains: str = ""
    note: str = ""
    weights: str | None = None
    next_id: int = 0


def expect_version(version: Version, number: int, first_id: int) -> None:
    """Raise ``ValueError`` unless what is written of a version can be true.

    Args:
        version: What is written.
        number: That of its folder.
        first_id: Sample id of the first row that is taught.
    """
    if version.number != number:
        raise ValueError(f"it is of version {version.number}, in the folder of version {number}")
    if not 0 <= version.parent < number:
        raise ValueError(f"parent must be an earlier version than {number}, got {version.parent}")
    restores, restored = version.verb == "restore", version.restored
    if version.verb == "damaged" or restores != (restored is not None):
        raise ValueError(f"verb {version.verb!r} does not go with restored {restored}")
    if restored is not None and not 0 <= restored < number:
        raise ValueError(f"restored must be an earlier version than {number}, got {restored}")
    if not first_id <= version.next_id <= MOST_ID:
        raise ValueError(f"next_id must be from {first_id} to {MOST_ID}, got {version.next_id}")
