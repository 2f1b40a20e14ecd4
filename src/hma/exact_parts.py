"""What a prediction is made of, exactly, where stored rows vote beside the head."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hma.targets.target import NO_VOTE, Target

if TYPE_CHECKING:
    from hma.model import HMA


@dataclass(frozen=True)
class ExactParts:
    """What head, stored rows and slots each put into predictions: together they are them.

    Every part is a piece of the probability of each class (of yes for each yes/no label), or of
    the number, in its unit: ``head + from_queue + from_slots + even + linear`` is
    ``Explanation.probabilities``.

    Shape:
        - ``head``, ``from_queue``, ``from_slots`` ``(B, O)``: by the head, all stored rows and all
          slots; ``(B,)`` each where the target is a number, as probabilities are.
        - ``even`` ``(B, O)``: a small vote that counts the same for every class (for yes and no;
          for the mean number), so that nothing is ruled out.
        - ``linear`` ``(B, O)``: by the linear part of :class:`hma.HMAClassifier`; else 0.
        - ``queue_weights`` ``(B, N)``, ``slot_weights`` ``(B, S)``: of each row in the vote;
          ``counts`` ``(B, O)``: what a weight of 1 counts.
        - ``queue_states`` ``(N, O)``, ``slots_state`` ``(S, O)``: what each row's label says.
    """

    head: Tensor
    from_queue: Tensor
    from_slots: Tensor
    even: Tensor
    linear: Tensor
    queue_weights: Tensor
    slot_weights: Tensor
    counts: Tensor
    queue_states: Tensor
    slots_state: Tensor

    def queue(self, row: int) -> Tensor:
        """Return what each stored row put into the prediction of ``row``, ``(N, O)``."""
        return _given(self.queue_weights[row], self.counts[row], self.queue_states)

    def slots(self, row: int) -> Tensor:
        """Return what each slot put into the prediction of ``row``, ``(S, O)``."""
        return _given(self.slot_weights[row], self.counts[row], self.slots_state)

    @property
    def whole(self) -> Tensor:
        """The sum of all parts: the prediction."""
        return self.head + self.from_queue + self.from_slots + self.even + self.linear

    def beside(self, linear: Tensor, share: float) -> "ExactParts":
        """Return the parts of an answer in which something else counts ``share``.

        Args:
            linear: What it says, as probabilities are.
            share: What it counts, from 0 to 1.
        """
        kept = 1 - share
        return replace(
            self,
            head=kept * self.head,
            from_queue=kept * self.from_queue,
            from_slots=kept * self.from_slots,
            even=kept * self.even,
            linear=kept * self.linear + share * linear,
            counts=kept * self.counts,
        )


def _given(weights: Tensor, counts: Tensor, states: Tensor) -> Tensor:
    """Return ``(N,)``, ``(O,)`` and ``(N, O)`` as ``(N, O)``; without the axis of a number."""
    return (weights[:, None] if states.dim() > 1 else weights) * counts * states


def memory_share(model: "HMA") -> Tensor | None:
    """Return what the vote counts beside the head; None where it is no part of the answer.

    Votes that are added to logits, and attention, have no exact part in a probability.
    """
    vote = model.vote
    if vote is None:
        return None
    if vote.share is not None:
        return vote.share
    alone = model.config.vote == "alone" and float(vote.gate) == 1.0
    return vote.gate.detach() if alone else None


def exact_parts(
    model: "HMA", share: Tensor, headed: Tensor, queue: Tensor, slots: Tensor, places: Tensor
) -> ExactParts:
    r"""Return what predictions are made of.

    .. math:: p_c = (1 - s)(1 - u)\, p_{head,c} + s_c \frac{\sum_j w_j y_{jc} + \epsilon e_c}
        {\sum_j w_j + \epsilon}

    with :math:`s_c = s`, and :math:`u = 0`, but for classes that were added,
    see :mod:`hma.added_classes`: there :math:`s_c = 1`, and the vote's :math:`u` is theirs.

    Args:
        model: Whose predictions.
        share: What the vote counts, see :func:`memory_share`.
        headed: Logits of the head, ``(B, outputs)``.
        queue, slots: Weights of stored rows ``(B, N)`` and slots ``(B, S)``.
        places: Where the stored rows lie, ``(N,)``.
    """
    target = model.target
    even = target.expected(target.tallied(headed.new_zeros(1, _ballot_width(target))))  # (1, O)
    stored, learned = model.real, model.synthetic
    states = [
        target.stated(stored.queue.labels[places]) if stored is not None else even[:0],
        target.stated(learned.labels) if learned is not None else even[:0],
    ]
    known = [(~one.isnan()).to(queue) for one in states]
    states = [one.nan_to_num().to(queue) for one in states]
    heard = (queue.sum(dim=1) + slots.sum(dim=1)).view(-1, *[1] * (even.dim() - 1))
    share = share.to(queue) * (heard if model.config.mixes else torch.ones_like(heard))
    total = queue @ known[0] + slots @ known[1] + NO_VOTE  # (B, O)
    counts, left = share / total, 1 - share
    if target.beyond_head:
        new = slice(even.shape[1] - target.beyond_head, None)
        counts[:, new] = 1 / total[:, new]
        left = left * (1 - ((queue @ states[0])[:, new] / total[:, new]).sum(dim=1, keepdim=True))
    return ExactParts(
        head=left * target.expected(headed).to(queue),
        from_queue=counts * (queue @ states[0]),
        from_slots=counts * (slots @ states[1]),
        even=counts * NO_VOTE * even.to(queue),
        linear=torch.zeros_like(counts),
        queue_weights=queue,
        slot_weights=slots,
        counts=counts,
        queue_states=states[0],
        slots_state=states[1],
    )


def _ballot_width(target: Target) -> int:
    return target.ballots(target.unknown(0)).shape[1]
