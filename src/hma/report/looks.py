"""Where predictions looked, and the health of what they looked at."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.config import Context
from hma.diagnostics import USED, queue_diagnostics, slot_diagnostics
from hma.explain import Explanation, explain
from hma.model import HMA
from hma.report.content import Attended, Attention, Example, Queue, Slots
from hma.report.statistics import Floats, Integers

EXAMPLES = 6
"""Training rows shown for each class."""
SHOWN_CLASSES = 16
"""Classes shown, those with most rows."""
LONGEST = 160
"""Characters of a row's description."""
PIXELS = 72
"""Longer side of a thumbnail."""
AT_ONCE = 256
"""Training rows encoded at a time."""


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """How to show the rows behind the sample ids that the model remembers.

    Args:
        describe: What the row at a place of the source is, as text.
        thumbnail: A PIL image of it, or None.
        places: Place in the source of each sample id; None where id and place are the same.
        inputs: From sample ids ``(B,)`` to the batch as the backbone takes it, on the model's
            device; None leaves staleness unknown.
    """

    describe: Callable[[int], str]
    thumbnail: Callable[[int], Any] | None = None
    places: Sequence[int] | None = None
    inputs: Callable[[Tensor], Any] | None = None


class Looks(NamedTuple):
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


def looks_in(context: str, model: HMA, features: Tensor, batch_size: int) -> Looks:
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
    return Looks(attention, on_queue.numpy(), on_slots.numpy(), answered.numpy())


def _same_class(
    same: float, total: float, labels: Tensor, answered: Tensor
) -> tuple[float, float] | None:
    """Return the part of the attention on the answer's class, and what an even look gives it."""
    if total == 0:
        return None
    held = torch.bincount(labels[labels >= 0], minlength=len(answered)) / len(labels)
    return same / total, float((held * answered).sum() / answered.sum())


def attended_of_class(
    looks: Looks, model: HMA, classes: Sequence[str], rows: TrainingRows
) -> tuple[Attended, ...]:
    """Return the training rows of each class that all test rows together look at most."""
    held = _Held.of(model)
    order = np.argsort(-np.bincount(held.labels, minlength=len(classes)), kind="stable")
    mass = held.summed(looks.on_queue.sum(axis=0))
    found = []
    for c in sorted(order[:SHOWN_CLASSES].tolist()):
        own = np.flatnonzero(held.labels == c)
        best = own[np.argsort(-mass[own], kind="stable")[:EXAMPLES]]
        if len(best) and mass.sum() > 0:
            examples = tuple(held.example(i, mass[i], classes, rows) for i in best.tolist())
            count = int(held.counts[own].sum())
            found.append(Attended(label=classes[c], rows=count, examples=examples))
    return tuple(found)


def attended_by_answer(
    looks: Looks, model: HMA, classes: Sequence[str], rows: TrainingRows
) -> tuple[Attended, ...]:
    """Return the training rows that the test rows of each answer look at most."""
    held = _Held.of(model)
    order = np.argsort(-looks.answered, kind="stable")[:SHOWN_CLASSES]
    found = []
    for c in sorted(order.tolist()):
        mass = held.summed(looks.on_queue[c])
        best = np.argsort(-mass, kind="stable")[:EXAMPLES]
        if len(best) and mass.sum() > 0:
            examples = tuple(held.example(i, mass[i], classes, rows) for i in best.tolist())
            count = int(looks.answered[c])
            found.append(Attended(label=classes[c], rows=count, examples=examples))
    return tuple(found)


@dataclass(frozen=True)
class _Held:
    """The different samples in the queue; one that is there more than once counts once."""

    known: NDArray[np.bool_]
    """Queue rows whose sample id was given."""
    inverse: Integers
    ids: Integers
    labels: Integers
    counts: Integers

    @classmethod
    def of(cls, model: HMA) -> "_Held":
        memory = model.memory_state()
        every = memory.ids.cpu().numpy()
        known = every >= 0
        ids, first, inverse, counts = np.unique(
            every[known], return_index=True, return_inverse=True, return_counts=True
        )
        return cls(known, inverse, ids, memory.labels.cpu().numpy()[known][first], counts)

    def summed(self, attention: Floats) -> Floats:
        """Return the part of the attention on the queue that each sample draws."""
        total = float(attention.sum()) or 1.0
        drawn = np.bincount(self.inverse, attention[self.known], minlength=len(self.ids))
        return np.asarray(drawn / total)

    def example(
        self, place: int, share: float, classes: Sequence[str], rows: TrainingRows
    ) -> Example:
        """Return the sample at ``place`` as the page shows it."""
        sample, label = int(self.ids[place]), int(self.labels[place])
        source = _place_of(sample, rows)
        text = " ".join(rows.describe(source).split())
        return Example(
            text=text if len(text) <= LONGEST else text[: LONGEST - 1] + "…",
            picture=None if rows.thumbnail is None else _png(rows.thumbnail(source)),
            label=classes[label] if 0 <= label < len(classes) else "unknown",
            share=float(share),
        )


def queue_health(model: HMA, rows: TrainingRows | None) -> Queue | None:
    """Return the state of the real memory; staleness is measured on every row it can be."""
    if model.real is None or model.config.queue_size == 0:
        return None
    found = queue_diagnostics(model)
    staleness = None
    ids = torch.from_numpy(np.unique(model.memory_state().ids.cpu().numpy()))
    ids = ids[ids >= 0]
    if rows is not None and rows.inputs is not None and len(ids):
        parts = []
        for start in range(0, len(ids), AT_ONCE):
            chunk = ids[start : start + AT_ONCE]
            measured = queue_diagnostics(model, rows.inputs(chunk), chunk).staleness
            if measured is not None:
                parts.append(measured.cpu().double().numpy())
        staleness = np.sort(np.concatenate(parts))
    return Queue(
        size=found.size,
        rows=found.rows,
        per_class=found.per_class.cpu().numpy(),
        balance=found.balance,
        staleness=staleness,
    )


def slot_health(model: HMA, looks: Looks | None) -> Slots | None:
    """Return the state of the slots; their use is that by the test rows, or by the queue."""
    memory = model.memory_state()
    if len(memory.slots) == 0:
        return None
    found = slot_diagnostics(model)
    classes = memory.slot_classes.cpu().numpy()
    usage = None if found.usage is None else found.usage.cpu().double().numpy()
    if looks is not None and looks.on_slots.sum() > 0:
        usage = looks.on_slots / looks.on_slots.sum()
    used = None
    if usage is not None:
        used = np.bincount(classes[usage >= USED / len(usage)], minlength=model.num_labels)
    return Slots(
        per_class=model.config.slots_per_class,
        distinct=found.distinct.cpu().numpy(),
        used=used,
        usage=usage,
        classes=classes,
    )


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


def _place_of(sample: int, rows: TrainingRows) -> int:
    if rows.places is None:
        return sample
    if sample >= len(rows.places):
        raise ValueError(
            f"places must name a row for each sample id, got {len(rows.places)} places and the "
            f"id {sample}; the places are those of another run"
        )
    return rows.places[sample]


def _png(image: Any) -> bytes | None:
    if image is None:
        return None
    small = image.copy() if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
    small.thumbnail((PIXELS, PIXELS))
    if small.mode == "RGB":
        small = small.quantize(128)  # a third of the bytes, and no worse to look at
    stream = BytesIO()
    small.save(stream, format="PNG", optimize=True)
    return stream.getvalue()
