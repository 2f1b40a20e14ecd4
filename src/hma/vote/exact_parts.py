"""What a prediction is made of, exactly, where stored rows vote beside the head."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hma.memory.attribution import ExactParts
from hma.targets.target import NO_VOTE, Target

if TYPE_CHECKING:
    from hma.vote.voting_memory import VotingMemory


def exact_parts(
    model: "VotingMemory", head: Tensor, queue: Tensor, slots: Tensor, places: Tensor
) -> ExactParts:
    r"""Return what predictions are made of.

    .. math:: p_c = (1 - s)(1 - u)\, p_{head,c} + s_c \frac{\sum_j w_j y_{jc} + \epsilon e_c}
        {\sum_j w_j + \epsilon}

    with :math:`s_c = s`, and :math:`u = 0`, but for classes that were added,
    see :mod:`hma.vote.added_classes`: there :math:`s_c = 1`, and the vote's :math:`u` is theirs.

    Args:
        model: Whose predictions.
        head: Logits of the head, ``(B, outputs)``.
        queue, slots: Weights of stored rows ``(B, N)`` and slots ``(B, S)``.
        places: Where the stored rows lie, ``(N,)``.
    """
    target = model.target
    even = target.expected(target.tallied(head.new_zeros(1, _ballot_width(target))))  # (1, O)
    stored, learned = model.real, model.synthetic
    states = [
        target.stated(stored.queue.labels[places]) if stored is not None else even[:0],
        target.stated(learned.labels) if learned is not None else even[:0],
    ]
    known = [(~one.isnan()).to(queue) for one in states]
    states = [one.nan_to_num().to(queue) for one in states]
    heard = (queue.sum(dim=1) + slots.sum(dim=1)).view(-1, *[1] * (even.dim() - 1))
    share = model.vote.share.to(queue) * heard
    total = queue @ known[0] + slots @ known[1] + NO_VOTE  # (B, O)
    counts, left = share / total, 1 - share
    if target.beyond_head:
        new = slice(even.shape[1] - target.beyond_head, None)
        counts[:, new] = 1 / total[:, new]
        left = left * (1 - ((queue @ states[0])[:, new] / total[:, new]).sum(dim=1, keepdim=True))
    return ExactParts(
        head=left * target.expected(head).to(queue),
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
