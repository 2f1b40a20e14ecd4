"""What is known of a run while its page is made: the model, its records, its answers."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hma.model import Context, MemoryModel
from hma.questions.explain import Explanation, explain
from hma.report.run_report import MEMORY, PLAIN, Candidate
from hma.report.scoring import RESAMPLES, Answers
from hma.report.statistics import Floats
from hma.targets import Classes, Target

Values = Mapping[str, Any]
"""JSON values of a record."""
SimpleRows = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Test set -> row -> metric -> value."""
LISTED = 20
"""Items of a list that are written out."""


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

    def place_of(self, sample: int) -> int:
        """Return the place in the source of a sample id."""
        if self.places is None:
            return sample
        if sample >= len(self.places):
            raise ValueError(
                f"places must name a row for each sample id, got {len(self.places)} places and the "
                f"id {sample}; the places are those of another run"
            )
        return self.places[sample]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Where the predictions of one context looked.

    Args:
        context: Inference context.
        rows: Test rows explained.
        overall: Mean share of itself, queue, batch, anchors and slots, ``(5,)``.
        by_class: The same over the rows answered as each class, ``(C, 5)``; NaN without rows.
        same_class: For 'queue' and 'slots', the part of the attention on them that goes to the
            class of the answer, and the part that an even look would give it.
    """

    context: str
    rows: int
    overall: Floats
    by_class: Floats
    same_class: Mapping[str, tuple[float, float]]


class Trace(NamedTuple):
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


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Everything that sections gather from.

    Attention, examples and maps are of the first test set, and the latter two of the model's own
    context: the first in its ``Answers.memory``.

    Args:
        title: Name of the run or the task.
        kind: What a row is: 'table', 'image', 'graph' or 'text'.
        classes: Names of the classes in the order of their ids, of several labels, or of the
            number.
        model: The trained model, as it was when it answered.
        tests: Labels, logits and features of each test set, the one of the headline first.
        records: Records of the methods that were trained, as JSON values; of the memory at least.
        target: What a label is; one of ``classes`` if not given.
        metric: What the epoch was selected by.
        splits: Labels of the rows of each split, such as 'train'; -1 or NaN where unknown.
        facts: How the splits came about, in JSON values.
        training_rows: How to show what the model remembers; None leaves examples out.
        simple: What simple baselines come to on the same rows.
        batch_size: Rows that see each other in context 'batch', as in evaluation.
        resamples: Draws of the bootstrap.
        seed: Decides the bootstrap's draws and the start of the maps.
        deployed: The method that answers new rows, among those of ``tests``.
        why: Which that is and why, in words.
        candidates: Everything that was trained, with its share of the mixture.
        notes: What a reader must know, such as files that were left out.
        unclaimed: Test set -> why nothing is claimed of it, where that is so.
        version: Which version of the memory answers; empty where it is as trained.
        more: What only the caller can gather, by name: 'audits', 'changes', 'coverage',
            'suspects'.
    """

    title: str
    kind: str
    classes: tuple[str, ...]
    model: MemoryModel
    tests: Mapping[str, Answers]
    records: Mapping[str, Values]
    target: Target = None  # type: ignore[assignment]  # set below
    metric: str = "accuracy"
    splits: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Values = field(default_factory=dict)
    training_rows: TrainingRows | None = None
    simple: SimpleRows = field(default_factory=dict)
    batch_size: int = 256
    resamples: int = RESAMPLES
    seed: int = 0
    deployed: str = MEMORY
    why: str = ""
    candidates: tuple[Candidate, ...] = ()
    notes: Sequence[str] = ()
    unclaimed: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target is None:
            object.__setattr__(self, "target", Classes(len(self.classes)))
        if len(self.groups) != self.model.num_labels:
            raise ValueError(
                f"classes must name {self.model.num_labels} classes, got {len(self.groups)}"
            )
        if not self.tests:
            raise ValueError("tests must hold at least one test set, got none")

    @property
    def groups(self) -> tuple[str, ...]:
        """What rows are counted by: classes, or what the slots of another target stand for."""
        return self.target.group_names(self.classes)

    @property
    def networks(self) -> dict[str, Values]:
        """Records of the plain backbone and of the memory."""
        return {name: self.records[name] for name in (PLAIN, MEMORY) if name in self.records}

    @property
    def answers(self) -> Answers:
        """Of the first test set."""
        return next(iter(self.tests.values()))

    @cached_property
    def traces(self) -> list[Trace]:
        """Where the answers of each context looked; nothing without features."""
        answers = self.answers
        if answers.features is None:
            return []
        rows = {c: answers.features[answers.orders.get(c, slice(None))] for c in answers.memory}
        return [
            trace_attention(c, self.model, features, self.batch_size)
            for c, features in rows.items()
        ]


def trace_attention(context: str, model: MemoryModel, features: Tensor, batch_size: int) -> Trace:
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
    held = model.target.given_membership(memory.labels)  # (N, C)
    slot_held = one_hot(memory.slot_classes.cpu(), model.num_labels).double()  # (S, C)
    kinds = torch.zeros(model.num_labels, 5, dtype=torch.float64)
    on_queue = torch.zeros(model.num_labels, len(held), dtype=torch.float64)
    on_slots = torch.zeros(model.num_labels, len(slot_held), dtype=torch.float64)
    answered = torch.zeros(model.num_labels, dtype=torch.float64)
    with _in_context(model, context):
        for chunk in torch.split(features, batch_size):
            found = explain(model, features=chunk.to(model.head.weight))
            said = model.target.given_membership(found.prediction).T  # (C, B)
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
    return Trace(attention, on_queue.numpy(), on_slots.sum(dim=0).numpy(), answered.numpy())


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


def flat(values: Values, prefix: str = "") -> dict[str, str]:
    """Return nested JSON values as dotted names and short texts.

    Example:
        >>> flat({"recipe": {"lr": 0.001, "schedule": None}, "contexts": ["batch", "alone"]})
        {'recipe.lr': '0.001', 'recipe.schedule': 'none', 'contexts': 'batch, alone'}
    """
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _text(value)
    return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or value == {} or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:LISTED])
        return shown + (f" and {len(value) - LISTED} more" if len(value) > LISTED else "")
    return json.dumps(value, default=str)
