"""Where a prediction looked: shares of attention, traced through both reads to their sources."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from hma.memory.attribution import ExactParts
from hma.memory.blocks import blocks
from hma.targets import UNKNOWN, Target

if TYPE_CHECKING:
    from hma.model import MemoryModel

SourceKind = Literal["itself", "queue", "batch", "anchor", "slot", "linear"]


@dataclass(frozen=True)
class Source:
    """One thing a prediction looked at, and how much."""

    kind: SourceKind
    index: int
    """Place among the sources of its kind: queue rows oldest first, batch rows, slots."""
    share: float
    label: int | float | list[float]
    """Label of a queue row, class of a slot; -1 where there is none."""
    sample: int
    """Sample id of a queue row; -1 where none was given."""


@dataclass(frozen=True)
class Explanation:
    """What each prediction of a batch came from; the shares of a row sum to 1 over all sources.

    Where the memory votes beside the head, a share is one of the answer: ``itself`` is that of
    the plain backbone and its head. Of attention it says what was looked at.

    Shape:
        - ``logits`` ``(B, C)``, ``probabilities`` ``(B, C)`` (two columns for one logit), or the
          value where the target is a number.
        - ``prediction``: class ids ``(B,)``, or as the target has them; ``words``: to be read.
        - ``itself`` ``(B,)``, ``queue`` ``(B, N)``, ``batch`` ``(B, B)`` with a zero diagonal,
          ``anchors`` ``(B, A)``, ``slots`` ``(B, S)``; ``linear`` ``(B,)``, of the linear part
          that :class:`hma.MemoryClassifier` has beside the network.
        - ``by_class`` ``(B, C)``: shares of queue rows and slots summed over each class, or over
          each prototype of a target that has no classes.
        - ``queue_classes`` ``(N, ...)`` labels, ``queue_ids`` ``(N,)``, ``slot_classes`` ``(S,)``.
        - ``exact``: what each part put into each probability, or the number, so that their sum is
          ``probabilities``; None where the parts of an answer do not add up.
    """

    logits: Tensor
    probabilities: Tensor
    prediction: Tensor
    words: tuple[str, ...]
    itself: Tensor
    queue: Tensor
    batch: Tensor
    anchors: Tensor
    slots: Tensor
    linear: Tensor
    by_class: Tensor
    queue_classes: Tensor
    queue_ids: Tensor
    slot_classes: Tensor
    exact: ExactParts | None

    def beside(self, linear: Tensor, share: float, target: Target) -> "Explanation":
        """Return the explanation of an answer in which something else counts ``share``.

        Args:
            linear: Its logits, ``(B, outputs)``.
            share: What it counts, from 0 to 1.
            target: What a label is.
        """
        logits = target.mix_logits([self.logits.to(linear), linear], [1 - share, share])
        own = ("itself", "queue", "batch", "anchors", "slots", "by_class")
        said = target.expected(linear).to(self.probabilities)
        return replace(
            self,
            logits=logits,
            probabilities=target.expected(logits),
            prediction=target.decide(logits),
            words=tuple(target.words(logits)),
            linear=torch.full_like(self.itself, share),
            exact=None if self.exact is None else self.exact.beside(said, share),
            **{name: (1 - share) * getattr(self, name) for name in own},
        )

    @property
    def sources(self) -> int:
        """Number of things a prediction can look at, itself included."""
        return 1 + sum(shares.shape[1] for _, shares, _, _ in self._parts())

    def top(self, row: int, k: int = 5) -> list[Source]:
        """Return the ``k`` sources that the prediction of ``row`` looked at most."""
        found = [Source("itself", row, float(self.itself[row]), UNKNOWN, UNKNOWN)]
        if float(self.linear[row]) > 0:
            found.append(Source("linear", row, float(self.linear[row]), UNKNOWN, UNKNOWN))
        for kind, shares, labels, ids in self._parts():
            amount, places = shares[row].topk(min(k, shares.shape[1]))
            for share, place in zip(amount.tolist(), places.tolist(), strict=True):
                label = UNKNOWN if labels is None else labels[place].tolist()
                sample = UNKNOWN if ids is None else int(ids[place])
                found.append(Source(kind, place, share, label, sample))
        return sorted(found, key=lambda source: -source.share)[:k]

    def _parts(self) -> list[tuple[SourceKind, Tensor, Tensor | None, Tensor | None]]:
        return [
            ("queue", self.queue, self.queue_classes, self.queue_ids),
            ("batch", self.batch, None, None),
            ("anchor", self.anchors, None, None),
            ("slot", self.slots, self.slot_classes, None),
        ]

    def __str__(self) -> str:
        """Return one line per prediction: class, probability, share of each kind of source."""
        lines = []
        for row, said in enumerate(self.words):
            sums = [("itself", self.itself[row]), ("linear", self.linear[row])]
            sums += [(kind, shares[row].sum()) for kind, shares, _, _ in self._parts()]
            shares = ", ".join(f"{kind} {float(s):.0%}" for kind, s in sums if float(s) > 0)
            lines.append(f"row {row}: {said} from {shares}")
        return "\n".join(lines)


@torch.no_grad()
def explain(model: "MemoryModel", x: Any = None, *, features: Tensor | None = None) -> Explanation:
    """Say where each prediction looked, in the model's inference context.

    Where rows vote beside the head (:class:`hma.VotingMemory`), shares are shares of the answer,
    and ``exact`` has what each row put into each probability. Shares of attention
    (:class:`hma.HMA`) say what was looked at, not how much it changed the outcome; for that leave
    parts out, see :func:`hma.contributions`.

    Args:
        model: The model; evaluated in eval mode, its own mode is restored.
        x: The batch, as the backbone takes it; unused if ``features`` are given.
        features: Features that the backbone has already made, ``(B, F)``.
    """
    with model.reading():
        if features is None:
            features = model.backbone(x)
        places = torch.empty(0, dtype=torch.long, device=features.device)
        if model.real is not None:
            places = model.real.queue.order()
        logits, shares, exact = model.attribute(features, places)
        target, none = model.target, places[:0]
        labels, ids = none, none
        if model.real is not None:
            labels, ids = (
                target.given(model.real.queue.labels[places]),
                model.real.queue.ids[places],
            )
        return Explanation(
            logits=logits,
            probabilities=target.expected(logits),
            prediction=target.decide(logits),
            words=tuple(target.words(logits)),
            **shares._asdict(),
            linear=torch.zeros_like(shares.itself),
            by_class=_of_prototypes(model, shares.queue, places, shares.slots),
            queue_classes=labels,
            queue_ids=ids,
            slot_classes=none if model.synthetic is None else model.synthetic.classes.clone(),
            exact=exact,
        )


def _of_prototypes(model: "MemoryModel", queue: Tensor, places: Tensor, slots: Tensor) -> Tensor:
    """Return the shares of queue rows and slots, summed over what they belong to, ``(B, P)``."""
    belongs = model.target.membership
    shares = slots.new_zeros(len(slots), model.num_labels)
    if model.synthetic is not None:
        shares = shares + slots @ belongs(model.synthetic.labels).to(slots)
    if model.real is not None:
        labels = model.real.queue.labels[places]
        for part in blocks(len(places)):
            shares = shares + queue[:, part] @ belongs(labels[part]).to(queue)
    return shares
