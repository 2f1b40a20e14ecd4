"""What an audit asks: the same rows, each time with other memories or beside other rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hma.checks import expect_shape, expect_tensor
from hma.memory.stored import Memories
from hma.model import Context
from hma.questions.audited import (
    ALONE,
    EMPTIED,
    PERMUTED,
    SHUFFLED,
    TOGETHER,
    TOGETHER_SHUFFLED,
    WITHOUT_SLOTS,
)

if TYPE_CHECKING:
    from hma.model import MemoryModel

AT_ONCE = 256
"""Rows that are asked at a time where none sees another."""
MOST_TOGETHER = 1024
"""Rows of a batch that a model which answers alone is asked to look at together."""
Part = tuple[Tensor, Tensor | None, Tensor | None]
"""Features ``(B, F)`` of a batch, its labels, and its sample ids if they are known."""


@dataclass(frozen=True)
class Question:
    """A context, what the memories are, and in which order rows are put into batches."""

    context: Context
    memories: Memories
    order: Tensor | None = None


def questions(
    model: "MemoryModel", context: Context, rows: "Rows", repeats: int, seed: int
) -> list[tuple[str, Callable[[], Question]]]:
    """Return every question beside the score as it is; memories are made when it is asked."""
    generator = torch.Generator().manual_seed(seed)
    stored, slots = sizes_of(model)
    asked: list[tuple[str, Callable[[], Question]]] = []

    def ask(name: str, where: Context, *, order: Tensor | None = None, **other: Any) -> None:
        asked.append(
            (name, lambda: Question(where, model.memories_with(context=where, **other), order))
        )

    if stored:
        assert model.real is not None
        queue = model.real.queue
        places, labels = queue.order(), queue.rows().labels
        if not bool((labels == labels[:1]).all()):
            for _ in range(repeats):
                labels_of = torch.arange(queue.size, device=places.device)
                drawn = torch.randperm(stored, generator=generator).to(places.device)
                labels_of[places] = places[drawn]
                ask(PERMUTED, context, labels_of=labels_of)
        every = torch.ones(queue.size, dtype=torch.bool, device=places.device)
        ask(EMPTIED, context, hidden_rows=every)
    if slots:
        every = torch.ones(slots, dtype=torch.bool, device=model.device)
        ask(WITHOUT_SLOTS, context, hidden_slots=every)
    orders = [
        torch.randperm(len(rows.labels), generator=generator)
        for _ in range(repeats if len(rows.sizes) > 1 else 0)  # of one batch there is one order
    ]
    if context == "batch":
        ask(ALONE, "alone")
        for order in orders:
            ask(SHUFFLED, "batch", order=order)
    elif context == "alone" and model.sees_batch and max(rows.sizes) <= MOST_TOGETHER:
        ask(TOGETHER, "batch")
        for order in orders:
            ask(TOGETHER_SHUFFLED, "batch", order=order)
    return asked


def sizes_of(model: "MemoryModel") -> tuple[int, int]:
    """Return the number of stored rows and of slots."""
    stored = 0 if model.real is None else len(model.real.queue.order())
    learned = None if model.synthetic is None else model.synthetic.slots
    return stored, 0 if learned is None else len(learned)


@dataclass(frozen=True)
class Rows:
    """Everything that is asked, and how many rows came together.

    Shape:
        - ``features`` ``(N, F)``, ``labels`` ``(N, ...)``, ``ids`` ``(N,)``.
    """

    features: Tensor
    labels: Tensor
    ids: Tensor | None
    sizes: list[int]

    @classmethod
    def of(cls, model: "MemoryModel", parts: Iterable[Part]) -> "Rows":
        """Return all batches in one, or say what does not fit."""
        features, labels, ids = [], [], []
        for made, y, names in parts:
            made = expect_tensor("features", made)
            expect_shape("features", made, None, model.feature_dim)
            if not isinstance(y, Tensor):
                raise TypeError(f"y must be a tensor of true labels, got {type(y).__name__}")
            model.target.checked(y, len(made))
            features.append(made)
            labels.append(y.cpu())
            if names is not None:
                expect_shape("ids", names, len(made))
                ids.append(names.to(made.device))
        if not sum(map(len, features)):
            raise ValueError("x must hold at least one row, got none")
        if ids and len(ids) < len(features):
            raise ValueError(
                f"ids must be given for every batch or for none, got them for {len(ids)} of "
                f"{len(features)}"
            )
        if ids and model.real is not None and model.real.nearest is not None:
            raise ValueError(
                "ids cannot be used where model.real.nearest chooses the rows; set it to None, or "
                "ask with rows that are not stored"
            )
        names = torch.cat(ids) if ids else None
        return cls(torch.cat(features), torch.cat(labels), names, [len(f) for f in features])

    def logits(self, model: "MemoryModel", question: Question) -> Tensor:
        """Return the logits of all rows, ``(N, C)``, on the CPU."""
        order = torch.arange(len(self.labels)) if question.order is None else question.order
        together: int | list[int] = self.sizes if question.context == "batch" else AT_ONCE
        answers = []
        for places in torch.split(order, together):
            features = self.features[places]
            memories = question.memories
            if self.ids is not None and model.real is not None:
                names = self.ids[places]
                own = (names[:, None] == model.real.queue.ids) & (names >= 0)[:, None]  # (B, M)
                memories = memories.hiding(rows=own)
            trace = model.trace(features, context=question.context, memories=memories)
            answers.append(trace.logits.float().cpu())
        logits = torch.empty(len(order), answers[0].shape[1])
        logits[order] = torch.cat(answers)
        return logits
