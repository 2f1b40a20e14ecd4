"""What a table's pictures show: which rows, and which of their measures. Nothing is drawn here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SLOT_MAP = "slot map"
"""Where the points of :class:`SlotMap` are among a record's ``measures``."""
ATTENTION_MAP = "attention map"
"""Where the shares of :class:`AttentionMap` are."""


@dataclass(frozen=True, kw_only=True)
class SlotMap:
    """Slots alone, and beside features of real rows, as points on a plane.

    Args:
        title: What it shows.
        rows: Rows of the table with such a measure, in order.
    """

    title: str
    rows: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AttentionMap:
    """Who looks at whom in the synthetic read: samples downwards, samples and slots across.

    Args:
        title: What it shows.
        rows: Rows of the table with such a measure, in order.
    """

    title: str
    rows: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SizeSweep:
    """Scores over the sizes of both memories: lines and a heat map, beside reference lines.

    Args:
        title: What it shows.
        sizes: Real memory and slots of a class -> the row of these sizes.
        references: Rows without a memory.
    """

    title: str
    sizes: Mapping[tuple[int, int], str]
    references: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> tuple[str, ...]:
        """All rows that it shows."""
        return (*self.sizes.values(), *self.references)


Picture = SlotMap | AttentionMap | SizeSweep
"""A new kind: a class here, and a file in ``hma/report/pictures/`` that turns records into it."""
