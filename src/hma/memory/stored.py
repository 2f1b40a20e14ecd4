"""The rows of both memories: real ones that are stored, synthetic ones that are learned."""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hma.memory.distributed import share_first_rank
from hma.memory.projected import Group, LabelledRows, Nearest, Projected
from hma.memory.queue import MemoryQueue
from hma.memory.slots import FROM_NOTHING, Examples, SlotInit, Start, slot_start
from hma.targets import Target


class StoredRows(nn.Module):
    """Past training rows, whoever reads them.

    Args:
        queue: Where the rows are kept.

    Attributes:
        nearest: Chooses the rows that each query reads, see :mod:`hma.vote.search`; None for all.
            It is a choice of the running program and not saved.
    """

    def __init__(self, queue: MemoryQueue) -> None:
        super().__init__()
        self.queue = queue
        self.nearest: Nearest | None = None

    def unseen(self) -> Tensor:
        """Return a bias that hides the places where no row is, ``(M,)``."""
        # DIFF[released code]: it starts from noise and attends to it; the paper's queue is empty.
        features = self.queue.features
        hidden = features.new_full((len(features),), float("-inf"))
        return hidden.masked_fill(self.queue.filled(), 0.0)

    def places(self, queries: Tensor, rows: Projected | LabelledRows) -> Tensor | None:
        """Return the places of the rows that ``nearest`` lets queries read; None for all."""
        placed = rows.placed if isinstance(rows, LabelledRows) else rows
        return None if self.nearest is None else self.nearest(queries, placed)

    def chosen(
        self, queries: Tensor, rows: Projected | LabelledRows
    ) -> tuple[Group, Tensor | None]:
        """Return the rows that queries read, and their places; None for all."""
        places = self.places(queries, rows)
        return (rows if places is None else rows.at(places)), places


class LearnedRows(nn.Module):
    """Learnable rows, ``slots_per_class`` for each class, whoever reads them.

    Args:
        target: What a label is; each of its prototypes has slots, as a class has.
        feature_dim: Width of a slot, ``F``.
        slots_per_class: Slots of each class.
        start: How slots start, see :mod:`hma.memory.slots`; by noise until there is data, if it
            needs any.
    """

    classes: Tensor
    labels: Tensor
    waiting: Tensor | None

    def __init__(
        self, target: Target, feature_dim: int, slots_per_class: int, start: SlotInit = "normal"
    ) -> None:
        super().__init__()
        self.start = start
        labels = target.prototypes().repeat_interleave(slots_per_class, dim=0)  # (S, ...)
        classes = torch.arange(len(target.prototypes())).repeat_interleave(slots_per_class)
        self.slots_per_class = slots_per_class
        self.slots: nn.Parameter | None = None
        if slots_per_class:
            self.slots = nn.Parameter(torch.zeros(len(labels), feature_dim))
        self.register_buffer("classes", classes, persistent=False)  # (S,)
        self.register_buffer("labels", labels, persistent=False)
        waits = bool(slots_per_class) and start not in FROM_NOTHING
        self.register_buffer("waiting", torch.tensor(True) if waits else None)
        self._warned = False

    def begin(self) -> None:
        """Give every slot a value while there is no data."""
        waits = self.waiting is not None
        self._fill(slot_start("normal" if waits else self.start), None)

    @torch.no_grad()
    def restart(self, start: Start, examples: Examples | None = None) -> None:
        """Give every slot a first value; all ranks get that of the first."""
        self._fill(start, examples)
        if self.slots is not None:
            share_first_rank(self.slots)
        if self.waiting is not None:
            self.waiting.fill_(False)

    @torch.no_grad()
    def _fill(self, start: Start, examples: Examples | None) -> None:
        if self.slots is not None:
            self.slots.copy_(start(self.slots, self.classes, examples))

    @property
    def waits(self) -> bool:
        """Whether slots that are to start from data have been given none yet."""
        return self.waiting is not None and bool(self.waiting)

    def warn_if_waiting(self) -> None:
        """Say once that training goes on with slots that were to start from data."""
        if not self._warned and self.waits:
            warnings.warn(
                f"slot_init={self.start!r} needs rows and has been given none, so the slots start "
                "as noise; call model.start_slots(batches) before the first step",
                stacklevel=4,
            )
        self._warned = True

    def extra_repr(self) -> str:  # noqa: D102
        return f"slots are noise until {self.start!r} is given rows" if self.waits else ""


class Memories(NamedTuple):
    """Both memories as the reads see them now; None where there is nothing to read.

    Where one read serves both, ``real`` holds the rows of all, see :mod:`hma.joint`.
    """

    real: Projected | LabelledRows | None
    synthetic: Projected | LabelledRows | None

    def hiding(self, rows: Tensor | None = None, slots: Tensor | None = None) -> "Memories":
        """Return them without stored rows or slots, as :meth:`Projected.hiding` has it."""
        real, synthetic = self
        return Memories(
            real if real is None or rows is None else real.hiding(rows),
            synthetic if synthetic is None or slots is None else synthetic.hiding(slots),
        )
