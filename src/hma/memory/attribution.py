"""What a prediction came from: shares of its sources, and exact parts where an answer is a sum."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from torch import Tensor


class Shares(NamedTuple):
    """What each source counts in the predictions of a batch; they sum to 1 over all sources.

    Shape:
        - ``itself`` ``(B,)``, ``queue`` ``(B, N)``, ``batch`` ``(B, B)`` with a zero diagonal,
          ``anchors`` ``(B, A)``, ``slots`` ``(B, S)``.
    """

    itself: Tensor
    queue: Tensor
    batch: Tensor
    anchors: Tensor
    slots: Tensor


class SolvedPart(Protocol):
    """What stored rows put into answers by saying what was solved for."""

    def row(self, query: int) -> Tensor:
        """Return what each stored row put into one prediction, ``(N, O)``."""
        ...

    def times(self, share: float) -> "SolvedPart":
        """Return the parts of an answer that counts ``share``."""
        ...


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
        - ``linear`` ``(B, O)``: by the linear part of an estimator; else 0.
        - ``queue_weights`` ``(B, N)``, ``slot_weights`` ``(B, S)``: of each row in the vote;
          ``counts`` ``(B, O)``: what a weight of 1 counts.
        - ``queue_states`` ``(N, O)``, ``slots_state`` ``(S, O)``: what each row's label says.
        - ``solved``: what stored rows put in by saying what was solved for, part of
          ``from_queue``; a row may speak against an answer.
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
    solved: "tuple[SolvedPart, ...]" = ()

    def queue(self, row: int) -> Tensor:
        """Return what each stored row put into the prediction of ``row``, ``(N, O)``."""
        voted = _given(self.queue_weights[row], self.counts[row], self.queue_states)
        for part in self.solved:
            voted = voted + part.row(row).reshape(voted.shape)
        return voted

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
            solved=tuple(part.times(kept) for part in self.solved),
        )


def _given(weights: Tensor, counts: Tensor, states: Tensor) -> Tensor:
    """Return ``(N,)``, ``(O,)`` and ``(N, O)`` as ``(N, O)``; without the axis of a number."""
    return (weights[:, None] if states.dim() > 1 else weights) * counts * states
