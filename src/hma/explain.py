"""Where a prediction looked: shares of attention, traced through both reads to their sources."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from hma.attention import Weights
from hma.exact_parts import ExactParts, exact_parts, memory_share
from hma.many_rows import blocks, in_blocks
from hma.momentum import evaluating
from hma.targets import UNKNOWN, Target

if TYPE_CHECKING:
    from hma.model import HMA

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
          that :class:`hma.HMAClassifier` has beside the network.
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
        logits = target.mixed([self.logits.to(linear), linear], [1 - share, share])
        own = ("itself", "queue", "batch", "anchors", "slots", "by_class")
        said = target.expected(linear).to(self.probabilities)
        return replace(
            self,
            logits=logits,
            probabilities=target.expected(logits),
            prediction=target.decided(logits),
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
def explain(model: "HMA", x: Any = None, *, features: Tensor | None = None) -> Explanation:
    """Say where each prediction looked, in the model's inference context.

    Of votes mixed with the head (``HMAConfig()``), or alone, shares are shares of the answer, and
    ``exact`` has what each row put into each probability. Nothing else adds up like that: votes
    added to the head's logits have shares of the vote alone, and shares of attention say what was
    looked at, not how much it changed the outcome; for that leave parts out, see
    :func:`hma.contributions`.

    The weights of the paper's two reads, averaged over heads, are followed back to what entered
    the model: a neighbour's share is split into what came from the neighbour itself and
    what it had read from the queue. Residual connections are not counted.

    Args:
        model: The model; evaluated in eval mode, its own mode is restored.
        x: The batch, as the backbone takes it; unused if ``features`` are given.
        features: Features that the backbone has already made, ``(B, F)``.
    """
    with evaluating(model):
        if features is None:
            features = model.backbone(x)
        places = torch.empty(0, dtype=torch.long, device=features.device)
        if model.real is not None:
            places = model.real.queue.order()
        logits, shares, exact = (_voted if model.config.votes else _attended)(
            model, features, places
        )
    target, none = model.target, places[:0]
    labels, ids = none, none
    if model.real is not None:
        labels, ids = target.given(model.real.queue.labels[places]), model.real.queue.ids[places]
    return Explanation(
        logits=logits,
        probabilities=target.expected(logits),
        prediction=target.decided(logits),
        words=tuple(target.words(logits)),
        **shares._asdict(),
        linear=torch.zeros_like(shares.itself),
        by_class=_of_prototypes(model, shares.queue, places, shares.slots),
        queue_classes=labels,
        queue_ids=ids,
        slot_classes=none if model.synthetic is None else model.synthetic.classes.clone(),
        exact=exact,
    )


class _Shares(NamedTuple):
    """Shares of one batch, as :class:`Explanation` has them."""

    itself: Tensor
    queue: Tensor
    batch: Tensor
    anchors: Tensor
    slots: Tensor


def _voted(
    model: "HMA", features: Tensor, places: Tensor
) -> tuple[Tensor, _Shares, ExactParts | None]:
    """Return logits, shares and exact parts where rows vote; no row sees another of its batch."""
    trace, count, size = model.trace(features), len(features), 0
    if model.real is not None:
        size = model.real.queue.size
    none = torch.zeros(count, 0, device=features.device)
    queue = none if trace.real is None else trace.real.over_rows(size)[:, places]  # (B, N)
    slots = none
    if trace.synthetic is not None and model.synthetic is not None:
        slots = trace.synthetic.over_rows(len(model.synthetic.classes))  # (B, S)
    heard = queue.sum(dim=1, keepdim=True) + slots.sum(dim=1, keepdim=True)  # (B, 1)
    counted = (heard > 0).to(heard)  # without a row to hear the head answers alone
    rows = queue / (heard + (1 - counted))
    of_slots = slots / (heard + (1 - counted))
    exact, share = None, memory_share(model)
    if share is not None:
        exact = exact_parts(model, share, model.headed(features), queue, slots, places)
        counted = counted * share.to(heard) * heard
    unknown = _unknown_to_head(model, places).to(rows)  # (N,)
    kept = rows * (counted + (1 - counted) * unknown)
    itself = (1 - counted) * (1 - rows @ unknown[:, None])
    none = heard.new_zeros(count, count)
    shares = _Shares(itself[:, 0], kept, none, none[:, :0], of_slots * counted)
    return trace.logits, shares, exact


def _unknown_to_head(model: "HMA", places: Tensor) -> Tensor:
    """Return how far each stored row is of classes that its head does not know, ``(N,)``."""
    new = model.target.beyond_head
    if model.real is None or not new:
        return torch.zeros(len(places), device=places.device)
    labels, belongs = model.real.queue.labels[places], model.target.membership
    return in_blocks(lambda part: belongs(part)[:, -new:].sum(dim=1), labels)


def _attended(
    model: "HMA", features: Tensor, places: Tensor
) -> tuple[Tensor, _Shares, ExactParts | None]:
    """Return logits and the shares of attention, followed through the reads to their sources."""
    context, trace = model.context, model.trace(features)
    anchors = model.anchors if context == "anchors" else model.anchors[:0]
    read_before = len(anchors) and model.joint is None
    anchor_trace = model.trace(anchors, context=context) if read_before else None
    count, size = len(features), 0 if model.real is None else model.real.queue.size
    own_real, queue_real = _first_read(trace.real, count, size, places)
    num_slots = 0 if model.synthetic is None else len(model.synthetic.classes)
    own, rest = _second_read(trace.synthetic, count, num_slots + len(anchors), features.device)
    slots, to_anchors = rest[:, :num_slots], rest[:, num_slots:]  # (B, S), (B, A)
    queue = queue_real if model.joint is not None else own @ queue_real  # (B, N)
    if anchor_trace is not None:
        own_anchor, queue_anchor = _first_read(anchor_trace.real, len(anchors), size, places)
        queue = queue + to_anchors @ queue_anchor
        to_anchors = to_anchors * own_anchor
    batch = own * own_real if model.joint is None else own  # (B, B): what came from each row itself
    itself = batch.diagonal().clone()  # (B,)
    batch = batch - torch.diag(itself)
    parts = [itself[:, None], queue, batch, to_anchors, slots]
    total = torch.cat(parts, dim=1).sum(dim=1, keepdim=True)  # below 1 where top_k dropped some
    itself, *others = (part / total for part in parts)
    return trace.logits, _Shares(itself[:, 0], *others), None


def _first_read(
    weights: Weights | None, count: int, size: int, places: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the share each row kept for itself ``(B,)`` and gave to queue rows ``(B, N)``."""
    if weights is None:
        return torch.ones(count, device=places.device), torch.zeros(count, 0, device=places.device)
    own = weights.own.float().mean(dim=0)[:, :1].sum(dim=1)  # (H, B, 1) -> (B,)
    return own, weights.over_rows(size)[:, places]  # (B, M) -> (B, N)


def _second_read(
    weights: Weights | None, count: int, rows: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the shares over the batch ``(B, B)`` and over slots and anchors ``(B, S + A)``."""
    if weights is None:
        return torch.eye(count, device=device), torch.zeros(count, 0, device=device)
    own = weights.own.float().mean(dim=0)  # (H, B, B or 1) -> (B, B or 1)
    if own.shape[1] != count or weights.own.shape[-1] == 1:
        own = torch.diag(own[:, 0])
    return own, weights.over_rows(rows)


def _of_prototypes(model: "HMA", queue: Tensor, places: Tensor, slots: Tensor) -> Tensor:
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
