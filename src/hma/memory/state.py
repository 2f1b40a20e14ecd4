"""What the memories hold, copied out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hma.memory.stored import LearnedRows, StoredRows


@dataclass(frozen=True)
class MemoryState:
    """What the memories hold now, copied out.

    Shape:
        - ``features`` ``(N, F)``, ``labels`` ``(N, ...)``, ``ids`` ``(N,)``: queue rows, oldest
          first; -1 (NaN where labels are no class ids) stands for what was never given.
        - ``slots`` ``(S, F)``, ``slot_classes`` ``(S,)``: which prototype of the target, or class.
        - ``anchors`` ``(A, F)``.
    """

    features: Tensor
    labels: Tensor
    ids: Tensor
    slots: Tensor
    slot_classes: Tensor
    anchors: Tensor
    frozen: bool


def copied_out(
    real: StoredRows | None, synthetic: LearnedRows | None, anchors: Tensor, frozen: bool
) -> MemoryState:
    """Return a copy of what the memories hold now."""
    none = torch.empty(0, dtype=torch.long, device=anchors.device)
    features, labels, ids = anchors[:0], none, none
    if real is not None:
        features, labels, ids, _ = real.queue.rows()  # copies
        labels = real.queue.target.given(labels)
    slots, classes = anchors[:0], none
    if synthetic is not None:
        slots = slots if synthetic.slots is None else synthetic.slots.detach()
        classes = synthetic.classes
    return MemoryState(
        features=features,
        labels=labels.clone(),
        ids=ids,
        slots=slots.clone(),
        slot_classes=classes.clone(),
        anchors=anchors.clone(),
        frozen=frozen,
    )
