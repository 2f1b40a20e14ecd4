"""What the memories hold and where predictions looked: attention, examples, health, maps."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from hma.extras import needed
from hma.memory.memories import MemoryState
from hma.model import Context, MemoryModel
from hma.questions.diagnostics import USED, queue_diagnostics, slot_diagnostics
from hma.questions.explain import Explanation, explain
from hma.report.groups import belongs, group_names, label_text, membership
from hma.report.html import small_png
from hma.report.run_report import (
    POINT_KINDS,
    Attended,
    Attention,
    Example,
    HeldRow,
    Map,
    Queue,
    Slots,
)
from hma.report.statistics import Floats, Integers
from hma.targets import UNKNOWN, Target

EXAMPLES = 6
"""Training rows shown for each class."""
SHOWN_CLASSES = 16
"""Classes shown, those with most rows."""
LISTED = 60
"""Rows of the memory in its table."""
LONGEST = 160
"""Characters of a row's description."""
AT_ONCE = 256
"""Training rows encoded at a time."""
MOST = {"test": 300, "queue": 150, "slot": 200}
"""Points of each kind on a map."""
FEWEST = 8
"""Points below which a map says nothing."""
STEPS = 500
"""Of the layout; a few hundred points settle in them."""


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


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """How to show the rows behind the sample ids that the model remembers.

    Args:
        describe: What the row at a place of the source is, as text.
        thumbnail: A PIL image of it, or None.
        places: Place in the source of each sample id; None where id and place are the same.
        where: Where the row at a place came from; None leaves that out.
        features: From sample ids ``(B,)`` to what the backbone makes of these rows now, on the
            model's device; None leaves staleness unknown.
    """

    describe: Callable[[int], str]
    thumbnail: Callable[[int], Any] | None = None
    places: Sequence[int] | None = None
    where: Callable[[int], str] | None = None
    features: Callable[[Tensor], Tensor] | None = None


def attended_of_class(
    looked: Looked, model: MemoryModel, names: Sequence[str], rows: TrainingRows
) -> tuple[Attended, ...]:
    """Return the training rows of each group that all test rows together look at most."""
    held, groups = _Held.of(model, names), group_names(model.target, names)
    order = np.argsort(-held.belongs.sum(axis=0), kind="stable")
    mass = held.summed(looked.on_queue.sum(axis=0))
    found = []
    for c in sorted(order[:SHOWN_CLASSES].tolist()):
        own = np.flatnonzero(held.belongs[:, c])
        best = own[np.argsort(-mass[own], kind="stable")[:EXAMPLES]]
        if len(best) and mass.sum() > 0:
            examples = tuple(held.example(i, mass[i], rows) for i in best.tolist())
            count = int(held.counts[own].sum())
            found.append(Attended(label=groups[c], rows=count, examples=examples))
    return tuple(found)


def attended_by_answer(
    looked: Looked, model: MemoryModel, names: Sequence[str], rows: TrainingRows
) -> tuple[Attended, ...]:
    """Return the training rows that the test rows of each answer look at most."""
    held, groups = _Held.of(model, names), group_names(model.target, names)
    order = np.argsort(-looked.answered, kind="stable")[:SHOWN_CLASSES]
    found = []
    for c in sorted(order.tolist()):
        mass = held.summed(looked.on_queue[c])
        best = np.argsort(-mass, kind="stable")[:EXAMPLES]
        if len(best) and mass.sum() > 0:
            examples = tuple(held.example(i, mass[i], rows) for i in best.tolist())
            count = int(looked.answered[c])
            found.append(Attended(label=groups[c], rows=count, examples=examples))
    return tuple(found)


def most_looked_at(
    looked: Looked, model: MemoryModel, names: Sequence[str], rows: TrainingRows
) -> tuple[HeldRow, ...]:
    """Return the rows of the memory that all test rows together look at most."""
    held = _Held.of(model, names)
    mass = held.summed(looked.on_queue.sum(axis=0))
    best = np.argsort(-mass, kind="stable")[:LISTED].tolist()
    return tuple(held.row(place, mass[place], rows) for place in best)


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

    @classmethod
    def of(cls, model: MemoryModel, names: Sequence[str]) -> "_Held":
        memory = model.memory_state()
        every = memory.ids.cpu().numpy()
        known = every >= 0
        ids, first, inverse, counts = np.unique(
            every[known], return_index=True, return_inverse=True, return_counts=True
        )
        labels = memory.labels.cpu()[torch.from_numpy(known)][torch.from_numpy(first)]
        said = tuple(label_text(model.target, names, label) for label in labels.tolist())
        return cls(known, inverse, ids, belongs(model.target, labels).numpy(), said, counts)

    def summed(self, attention: Floats) -> Floats:
        """Return the part of the attention on the queue that each sample draws."""
        total = float(attention.sum()) or 1.0
        drawn = np.bincount(self.inverse, attention[self.known], minlength=len(self.ids))
        return np.asarray(drawn / total)

    def example(self, place: int, share: float, rows: TrainingRows) -> Example:
        """Return the sample at ``place`` as the page shows it."""
        source = _place_of(int(self.ids[place]), rows)
        return Example(
            text=_shortened(rows.describe(source)),
            picture=None if rows.thumbnail is None else small_png(rows.thumbnail(source)),
            label=self.labels[place] or "unknown",
            share=float(share),
        )

    def row(self, place: int, share: float, rows: TrainingRows) -> HeldRow:
        """Return the sample at ``place`` as a line of a table."""
        sample = int(self.ids[place])
        source = _place_of(sample, rows)
        return HeldRow(
            id=sample,
            label=self.labels[place] or "unknown",
            share=float(share),
            text=_shortened(rows.describe(source)),
            where="" if rows.where is None else rows.where(source),
        )


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _place_of(sample: int, rows: TrainingRows) -> int:
    if rows.places is None:
        return sample
    if sample >= len(rows.places):
        raise ValueError(
            f"places must name a row for each sample id, got {len(rows.places)} places and the "
            f"id {sample}; the places are those of another run"
        )
    return rows.places[sample]


def queue_health(model: MemoryModel, rows: TrainingRows | None) -> Queue | None:
    """Return the state of the real memory; staleness is measured on every row it can be."""
    if model.real is None or not model.config.has_real_memory:
        return None
    found = queue_diagnostics(model)
    staleness = None
    ids = torch.from_numpy(np.unique(model.memory_state().ids.cpu().numpy()))
    ids = ids[ids >= 0]
    if rows is not None and rows.features is not None and len(ids):
        parts = []
        for start in range(0, len(ids), AT_ONCE):
            chunk = ids[start : start + AT_ONCE]
            measured = queue_diagnostics(model, ids=chunk, features=rows.features(chunk)).staleness
            if measured is not None:
                parts.append(measured.cpu().double().numpy())
        staleness = np.sort(np.concatenate(parts))
    return Queue(
        size=found.size,
        rows=found.rows,
        per_class=belongs(model.target, model.memory_state().labels).sum(dim=0).numpy(),
        balance=found.balance,
        staleness=staleness,
    )


def slot_health(model: MemoryModel, looked: Looked | None) -> Slots | None:
    """Return the state of the slots; their use is that by the test rows, or by the queue."""
    memory = model.memory_state()
    if len(memory.slots) == 0:
        return None
    found = slot_diagnostics(model)
    classes = memory.slot_classes.cpu().numpy()
    usage = None if found.usage is None else found.usage.cpu().double().numpy()
    if looked is not None and looked.on_slots.sum() > 0:
        usage = looked.on_slots / looked.on_slots.sum()
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


def maps(
    memory: MemoryState, features: Tensor, labels: Tensor, *, target: Target, seed: int
) -> tuple[Map, ...]:
    """Return a map of the slots alone and one of slots, queue and test rows together.

    Label embeddings are left out: they are equal for every row of a class and would draw the
    classes apart by themselves. Directions are compared, because slots and features differ in
    length.

    Args:
        memory: What the model remembers.
        features: Features of test rows, ``(N, F)``.
        labels: Their labels, class ids ``(N,)`` or as the target has them.
        target: What a label is.
        seed: Start of the layout.
    """
    parts = {
        "test": _thinned(features, _group(target, labels), MOST["test"]),
        "queue": _thinned(memory.features, _group(target, memory.labels), MOST["queue"]),
        "slot": _thinned(memory.slots, memory.slot_classes, MOST["slot"]),
    }
    wanted: list[tuple[str, tuple[str, ...]]] = [("Slots, queue and test rows", POINT_KINDS)]
    if len(parts["slot"][1]):
        wanted.append(("Slots alone", ("slot",)))
    found = []
    for title, kinds in wanted:
        points = np.concatenate([parts[kind][0] for kind in kinds])
        if len(points) < FEWEST or np.ptp(points, axis=0).max() == 0:
            continue
        places = [np.full(len(parts[k][1]), POINT_KINDS.index(k)) for k in kinds]
        found.append(
            Map(
                title=title,
                places=laid_out(points, seed),
                kinds=np.concatenate(places),
                classes=np.concatenate([parts[kind][1] for kind in kinds]),
            )
        )
    return tuple(found)


def _group(target: Target, labels: Tensor) -> Tensor:
    """Return the group that each label belongs to most, -1 where it is unknown."""
    belongs = membership(target, labels)  # (N, C)
    return torch.where(belongs.any(dim=1), belongs.argmax(dim=1), UNKNOWN)


def _thinned(rows: Tensor, labels: Tensor, most: int) -> tuple[Floats, Integers]:
    """Return the directions of at most ``most`` rows, evenly spread over all."""
    kept = np.unique(np.linspace(0, max(len(rows) - 1, 0), min(most, len(rows))).astype(int))
    points = rows.detach().cpu().double().numpy()[kept]
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(length, 1e-30), labels.detach().cpu().numpy()[kept]


def laid_out(points: Floats, seed: int) -> Floats:
    """Return a place on a plane for each row, ``(N, F)`` to ``(N, 2)``."""
    layout = needed("sklearn.manifold", "the map of slots").TSNE(
        perplexity=min(30.0, (len(points) - 1) / 3),
        init="pca" if points.shape[1] > 1 else "random",
        max_iter=STEPS,
        random_state=seed,
    )
    # so few points only wait for each other on more threads
    with needed("threadpoolctl", "the map of slots").threadpool_limits(1):
        return np.asarray(layout.fit_transform(points), dtype=np.float64)
