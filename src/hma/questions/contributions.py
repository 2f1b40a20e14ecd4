"""What a prediction owes to the memories: how it changes when parts of them are left out."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hma.errors import UserError
from hma.targets import Target

if TYPE_CHECKING:
    from hma.model import MemoryModel

MOST_ROWS = 65536
"""Stored rows beyond which leaving out each of them would take more memory than there is."""
AT_ONCE = 256
"""Parts that are left out in one pass."""


@dataclass(frozen=True)
class Contributions:
    """Change of one prediction by each part of the memories: with it, less without it.

    Above 0 a part speaks for the prediction, below 0 against it. Parts that say the same stand in
    for each other, so effects do not add up.

    Shape:
        - ``output``: which output is meant: the class that is predicted, the yes/no label that
          is surest, or 0 for a number.
        - ``value``: its probability, or the number.
        - ``queue`` ``(N,)``: by each queue row, oldest first, with all copies of its sample;
          ``slots`` ``(S,)``: by each slot.
        - ``by_class`` ``(P,)``: by the queue rows and slots of each class, or prototype, together.
        - ``whole_queue``, ``whole_slots``, ``memory``: by all queue rows, all slots, and both.
    """

    output: int
    value: float
    queue: Tensor
    slots: Tensor
    by_class: Tensor
    whole_queue: float
    whole_slots: float
    memory: float


@torch.no_grad()
def contributions(
    model: "MemoryModel", x: Any = None, *, features: Tensor | None = None, row: int = 0
) -> Contributions:
    """Leave out each queue row, slot and class in turn, and say how a prediction changes.

    Unlike a share of attention this is what the part does to the outcome, feed-forward blocks and
    head included.

    Args:
        model: The model; evaluated in eval mode and its own context, its mode is restored.
        x: The batch, as the backbone takes it; unused if ``features`` are given.
        features: Features that the backbone has already made, ``(B, F)``.
        row: Which row of the batch; the others are its neighbours in context 'batch'.

    Example:
        >>> from hma import HMA, HMAConfig
        >>> config = HMAConfig(queue_size=4, slots_per_class=1)
        >>> model = HMA(torch.nn.Linear(3, 8), 2, config, feature_dim=8)
        >>> model.remember(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
        >>> found = contributions(model, torch.randn(1, 3))
        >>> found.queue.shape, found.slots.shape, found.by_class.shape
        (torch.Size([4]), torch.Size([2]), torch.Size([2]))
    """
    with model.reading():
        held = 0 if model.real is None else model.real.queue.size
        if held > MOST_ROWS:
            raise UserError(
                f"contributions leaves out every stored row in turn, at most {MOST_ROWS}, got "
                f"{held}; take hma.explain, whose shares of a vote are exact"
            )
        if features is None:
            features = model.backbone(x)
        parts = _Parts.of(model)
        whole = _answers(model, features, row, parts.none())[0]  # (O,)
        output = explained_output(model.target, whole)
        without = _answers(model, features, row, parts)[:, output]
    effects = whole[output] - without
    sizes = [parts.rows, parts.slots, parts.classes, 3]
    queue, slots, by_class, groups = torch.split(effects, sizes)
    return Contributions(output, float(whole[output]), queue, slots, by_class, *groups.tolist())


@dataclass(frozen=True)
class _Parts:
    """What to leave out: ``queue`` ``(G, M)`` and ``learned`` ``(G, S)``, True where hidden."""

    queue: Tensor
    learned: Tensor
    rows: int
    slots: int
    classes: int

    @classmethod
    def of(cls, model: "MemoryModel") -> "_Parts":
        """Return each row, each slot, each class, and all of both kinds and of either."""
        device = model.device
        size = model.real.queue.size if model.real is not None else 0
        places = torch.empty(0, dtype=torch.long, device=device)
        of_class = torch.zeros(model.num_labels, size, dtype=torch.bool, device=device)
        if model.real is not None and size:
            places = model.real.queue.order()
            of_class[:, places] = _belongs(model, model.real.queue.labels[places])
        learned = torch.zeros(model.num_labels, 0, dtype=torch.bool, device=device)
        if model.synthetic is not None:
            learned = _belongs(model, model.synthetic.labels)
        slots = learned.shape[1]
        every = torch.zeros(len(places), size, dtype=torch.bool, device=device)
        if model.real is not None and size:
            ids = model.real.queue.ids[places]
            same = (ids[:, None] == ids) & (ids >= 0)  # copies of one sample go together
            every[:, places] = same | torch.eye(len(ids), dtype=torch.bool, device=device)
        each = torch.eye(slots, dtype=torch.bool, device=device)
        groups = torch.tensor([[True, False], [False, True], [True, True]], device=device)
        all_rows, all_slots = groups[:, :1].expand(3, size), groups[:, 1:].expand(3, slots)
        return cls(
            torch.cat([every, every.new_zeros(slots, size), of_class, all_rows]),
            torch.cat([each.new_zeros(len(places), slots), each, learned, all_slots]),
            *(len(places), slots, model.num_labels),
        )

    def none(self) -> "_Parts":
        """Return one part that hides nothing."""
        queue, learned = torch.zeros_like(self.queue[:1]), torch.zeros_like(self.learned[:1])
        return replace(self, queue=queue, learned=learned)


def _belongs(model: "MemoryModel", labels: Tensor) -> Tensor:
    """Tell which labels belong to each class, or prototype, most, ``(P, N)``."""
    shares = model.target.membership(labels).T  # (N, P) -> (P, N)
    return (shares > 0) & (shares == shares.amax(dim=0, keepdim=True))


def _answers(model: "MemoryModel", features: Tensor, row: int, parts: _Parts) -> Tensor:
    """Return what the model expects of a row with each part hidden, ``(G, O)``."""
    alone = not model.sees_batch or model.context == "alone"
    found = []
    if alone and (model.real is None or model.real.nearest is None):
        chunks = (torch.split(hidden, AT_ONCE) for hidden in (parts.queue, parts.learned))
        for queue, learned in zip(*chunks, strict=True):
            same = features[row].expand(len(queue), -1)  # a copy of the row for each part
            left = model.memories_with(hidden_rows=queue, hidden_slots=learned)
            found.append(model.trace(same, memories=left).logits)
    else:
        for queue, learned in zip(parts.queue, parts.learned, strict=True):
            left = model.memories_with(hidden_rows=queue, hidden_slots=learned)
            found.append(model.trace(features, memories=left).logits[row : row + 1])
    said = model.target.expected(torch.cat(found))
    return said[:, None] if said.dim() == 1 else said


def explained_output(target: Target, expected: Tensor) -> int:
    """Return the output that an explanation is about: what is predicted, the surest yes or no.

    Args:
        target: What a label is.
        expected: What it expects of one row, ``(O,)``.
    """
    return int((expected if target.picks_one else (expected - 0.5).abs()).argmax())
