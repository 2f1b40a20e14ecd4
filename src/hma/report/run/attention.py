"""Where predictions looked: attention by kind of source, by answer and by row."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hma.model import Context, MemoryModel
from hma.questions.explain import Explanation, explain
from hma.report.run.groups import membership
from hma.report.run.run_report import Attention
from hma.report.statistics import Floats


class Looked(NamedTuple):
    """Attention of one context, and what it is made of.

    Shape:
        - ``on_queue`` ``(C, N)``: attention on each queue row by the test rows of each answer;
          ``C`` counts groups where a label is no class id.
        - ``on_slots`` ``(S,)``: attention on each slot.
        - ``answered`` ``(C,)``: test rows of each answer.
    """

    attention: Attention
    on_queue: Floats
    on_slots: Floats
    answered: Floats


def attention_in(context: str, model: MemoryModel, features: Tensor, batch_size: int) -> Looked:
    """Explain every row of ``features`` in ``context``, ``batch_size`` rows together.

    Args:
        context: Inference context; in 'batch' and 'batch-sorted' the rows of a batch see each
            other.
        model: The model; its own context is restored.
        features: Features as the model's backbone makes them, ``(N, F)``, in the order of the
            context.
        batch_size: Rows of a batch, as in evaluation.
    """
    memory = model.memory_state()
    held = membership(model.target, memory.labels)  # (N, C)
    slot_held = one_hot(memory.slot_classes.cpu(), model.num_labels).double()  # (S, C)
    kinds = torch.zeros(model.num_labels, 5, dtype=torch.float64)
    on_queue = torch.zeros(model.num_labels, len(held), dtype=torch.float64)
    on_slots = torch.zeros(model.num_labels, len(slot_held), dtype=torch.float64)
    answered = torch.zeros(model.num_labels, dtype=torch.float64)
    with _in_context(model, context):
        for start in range(0, len(features), batch_size):
            chunk = features[start : start + batch_size].to(model.head.weight)
            found = explain(model, features=chunk)
            said = membership(model.target, found.prediction).T  # (C, B)
            kinds += said @ _kinds(found).cpu().double()
            on_queue += said @ found.queue.cpu().double()
            on_slots += said @ found.slots.cpu().double()
            answered += said.sum(dim=1)
    same = {
        "queue": _same_group(on_queue, held, answered),
        "slots": _same_group(on_slots, slot_held, answered),
    }
    unanswered = torch.where(answered > 0, 1.0, torch.nan)[:, None]
    attention = Attention(
        context=context,
        rows=len(features),
        overall=(kinds.sum(dim=0) / len(features)).numpy(),
        by_class=(kinds / answered.clamp(min=1)[:, None] * unanswered).numpy(),
        same_class={kind: found for kind, found in same.items() if found is not None},
    )
    return Looked(attention, on_queue.numpy(), on_slots.sum(dim=0).numpy(), answered.numpy())


def _same_group(on: Tensor, held: Tensor, answered: Tensor) -> tuple[float, float] | None:
    """Return the part of the attention on the answer's group, and what an even look gives it.

    Args:
        on: Attention by the rows of each answer on each source, ``(C, N)``.
        held: How far each source belongs to each group, ``(N, C)``.
        answered: Rows of each answer, ``(C,)``.
    """
    total = float(on.sum())
    if total == 0:
        return None
    even = held.mean(dim=0) @ answered / answered.sum()
    return float((on * held.T).sum()) / total, float(even)


@contextmanager
def _in_context(model: MemoryModel, context: str) -> Iterator[None]:
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
