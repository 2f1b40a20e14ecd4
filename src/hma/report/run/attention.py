"""Where predictions looked: attention by kind of source, by answer and by row."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor

from hma.config import Context
from hma.explain import Explanation, explain
from hma.model import HMA
from hma.report.run.run_report import Attention
from hma.report.statistics import Floats


class Looked(NamedTuple):
    """Attention of one context, and what it is made of.

    Shape:
        - ``on_queue`` ``(C, N)``: attention on each queue row by the test rows of each answer.
        - ``on_slots`` ``(S,)``: attention on each slot.
        - ``answered`` ``(C,)``: test rows of each answer.
    """

    attention: Attention
    on_queue: Floats
    on_slots: Floats
    answered: Floats


def attention_in(context: str, model: HMA, features: Tensor, batch_size: int) -> Looked:
    """Explain every row of ``features`` in ``context``, ``batch_size`` rows together.

    Args:
        context: Inference context; in 'batch' and 'batch-sorted' the rows of a batch see each
            other.
        model: The model; its own context is restored.
        features: Features as the model's backbone makes them, ``(N, F)``, in the order of the
            context.
        batch_size: Rows of a batch, as in evaluation.
    """
    classes = model.num_labels
    memory = model.memory_state()
    labels, slot_labels = memory.labels.cpu(), memory.slot_classes.cpu()
    kinds = torch.zeros(classes, 5, dtype=torch.float64)
    on_queue = torch.zeros(classes, len(labels), dtype=torch.float64)
    on_slots = torch.zeros(len(slot_labels), dtype=torch.float64)
    slots_same = 0.0
    answered = torch.zeros(classes, dtype=torch.float64)
    with _in_context(model, context):
        for start in range(0, len(features), batch_size):
            chunk = features[start : start + batch_size].to(model.anchors)
            found = explain(model, features=chunk)
            said, slots = found.prediction.cpu(), found.slots.cpu().double()
            kinds.index_add_(0, said, _kinds(found).cpu().double())
            on_queue.index_add_(0, said, found.queue.cpu().double())
            on_slots += slots.sum(dim=0)
            slots_same += float(slots[said[:, None] == slot_labels[None]].sum())
            answered += torch.bincount(said, minlength=classes)
    queue_same = float(on_queue[torch.arange(classes)[:, None] == labels[None]].sum())
    same = {
        "queue": _same_class(queue_same, float(on_queue.sum()), labels, answered),
        "slots": _same_class(slots_same, float(on_slots.sum()), slot_labels, answered),
    }
    unanswered = torch.where(answered > 0, 1.0, torch.nan)[:, None]
    attention = Attention(
        context=context,
        rows=len(features),
        overall=(kinds.sum(dim=0) / len(features)).numpy(),
        by_class=(kinds / answered.clamp(min=1)[:, None] * unanswered).numpy(),
        same_class={kind: found for kind, found in same.items() if found is not None},
    )
    return Looked(attention, on_queue.numpy(), on_slots.numpy(), answered.numpy())


def _same_class(
    same: float, total: float, labels: Tensor, answered: Tensor
) -> tuple[float, float] | None:
    """Return the part of the attention on the answer's class, and what an even look gives it."""
    if total == 0:
        return None
    held = torch.bincount(labels[labels >= 0], minlength=len(answered)) / len(labels)
    return same / total, float((held * answered).sum() / answered.sum())


@contextmanager
def _in_context(model: HMA, context: str) -> Iterator[None]:
    before = model.context
    try:
        model.context = cast("Context", context.removesuffix("-sorted"))
        yield
    finally:
        model.context = before


def _kinds(found: Explanation) -> Tensor:
    """Return the share of each kind of source, ``(B, 5)``."""
    parts = (found.queue, found.batch, found.anchors, found.slots)
    return torch.stack([found.itself, *(part.sum(dim=1) for part in parts)], dim=1)
