"""Health of the memories: are slots distinct and used, is the queue full, balanced and fresh?"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hma.questions.explain import explain
from hma.targets import UNKNOWN

if TYPE_CHECKING:
    from hma.model import MemoryModel

USED = 0.1
"""A slot counts as used if it draws at least this part of an even share."""


@dataclass(frozen=True)
class SlotDiagnostics:
    """What became of the slots.

    Shape:
        - ``classes`` ``(S,)``: class of each slot.
        - ``nearest`` ``(S,)``: distance to the nearest other slot of the same class, relative
          to the mean norm of the slots; infinite for the only slot of its class.
        - ``distinct`` ``(C,)``: different slots in each class; equal ones count once.
        - ``usage`` ``(S,)``: share of the attention on slots that each draws, summing to 1;
          None where there was nothing to probe with.
        - ``used`` ``(S,)`` of bool: at least a tenth of an even share.
    """

    classes: Tensor
    nearest: Tensor
    distinct: Tensor
    usage: Tensor | None
    used: Tensor | None

    def __str__(self) -> str:
        slots, classes = len(self.classes), len(self.distinct)
        text = f"{int(self.distinct.sum())} of {slots} slots distinct over {classes} classes"
        if self.used is None:
            return text + "; usage unknown (nothing to probe with)"
        return text + f"; {int(self.used.sum())} of {slots} used"


@dataclass(frozen=True)
class QueueDiagnostics:
    """What the queue holds.

    Shape:
        - ``per_class`` ``(C,)``: rows of each class, or of each prototype of a target without
          classes; rows of unknown class are not counted.
        - ``staleness`` ``(K,)``: distance between stored features and what the backbone gives
          today, relative to today's norm, for the rows whose sample was given; None without.
    """

    size: int
    rows: int
    per_class: Tensor
    staleness: Tensor | None

    @property
    def fill(self) -> float:
        """Part of the queue that holds rows."""
        return self.rows / self.size if self.size else 0.0

    @property
    def balance(self) -> float:
        """Evenness of the classes: entropy over its maximum, 1 is even, 0 is one class only."""
        share = self.per_class.double() / self.per_class.sum().clamp(min=1)
        return float(torch.special.entr(share).sum()) / math.log(len(share))

    def __str__(self) -> str:
        if self.size and not self.rows:
            return "empty: call model.remember(x, y) after every optimizer step"
        text = f"{self.rows} of {self.size} rows filled, class balance {self.balance:.2f}"
        if self.staleness is None or len(self.staleness) == 0:
            return text + "; staleness unknown (no sample of the queue was given)"
        return text + (
            f"; staleness {float(self.staleness.mean()):.3f} over {len(self.staleness)} rows"
        )


@torch.no_grad()
def slot_diagnostics(model: "MemoryModel", x: Any = None) -> SlotDiagnostics:
    """Tell whether the slots of a class are distinct and which are used.

    Args:
        model: The model.
        x: A batch to probe the use of slots with; without one, the rows of the queue serve.
    """
    memory = model.memory_state()
    usage = None
    if x is not None:
        usage = _usage(explain(model, x).slots)
    elif len(memory.features):
        usage = _usage(explain(model, features=memory.features).slots)
    slots = memory.slots.double()
    apart = torch.cdist(slots, slots) / slots.norm(dim=1).mean().clamp(min=1e-30)  # (S, S)
    other = memory.slot_classes[:, None] != memory.slot_classes[None]
    apart = apart.masked_fill(other, math.inf)
    earlier_twin = (apart < 1e-6).tril(diagonal=-1).any(dim=1)  # an equal slot stands before it
    first_of_kind = memory.slot_classes[~earlier_twin]
    return SlotDiagnostics(
        classes=memory.slot_classes,
        nearest=apart.fill_diagonal_(math.inf).min(dim=1).values if len(slots) else apart.sum(1),
        distinct=torch.bincount(first_of_kind, minlength=model.num_labels),
        usage=usage,
        used=None if usage is None else usage >= USED / max(len(slots), 1),
    )


def _usage(shares: Tensor) -> Tensor:
    drawn = shares.sum(dim=0)  # (B, S) -> (S,)
    return drawn / drawn.sum().clamp(min=1e-30)


@torch.no_grad()
def queue_diagnostics(
    model: "MemoryModel",
    x: Any = None,
    ids: Tensor | None = None,
    *,
    features: Tensor | None = None,
) -> QueueDiagnostics:
    """Tell how full, balanced and fresh the queue is.

    Args:
        model: The model.
        x: A batch of samples to measure staleness with.
        ids: Their sample ids ``(B,)``, as they were given to ``remember``.
        features: What the backbone makes of them ``(B, F)``, where that is known; in place of x.
    """
    if (x is None and features is None) != (ids is None):
        raise ValueError("x and ids must be given together; staleness compares samples by id")
    with model.reading():
        memory = model.memory_state()
        size, per_class = 0 if model.real is None else model.real.queue.size, _per_class(model)
        today = model.backbone(x) if features is None and ids is not None else features
    staleness = None
    if ids is not None and today is not None:
        ids = ids.to(memory.ids.device)
        same = (memory.ids[:, None] == ids[None]) & (memory.ids[:, None] != UNKNOWN)  # (N, B)
        row, sample = same.nonzero(as_tuple=True)
        apart = (memory.features[row] - today[sample]).norm(dim=1)
        staleness = apart / today[sample].norm(dim=1).clamp(min=1e-30)
    return QueueDiagnostics(
        size=size,
        rows=len(memory.labels),
        per_class=per_class,
        staleness=staleness,
    )


def _per_class(model: "MemoryModel") -> Tensor:
    if model.real is None:
        return torch.zeros(model.num_labels)
    return model.target.membership(model.real.queue.rows().labels).sum(dim=0)
