"""Held-out rows decide how sharp the vote is and what it counts beside the head."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hma.memory.blocks import in_blocks
from hma.memory.encoded_rows import EncodedRows
from hma.metrics.line_search import lowest
from hma.vote.added_classes import complete_head
from hma.vote.read import MOST_SHARPENED, QUERIES_AT_ONCE, VotingRead
from hma.vote.shares import fitted_shares

if TYPE_CHECKING:
    from hma.vote.voting_memory import VotingMemory

MOST_HELD_OUT = 400
"""Held-out rows that are asked more than once."""
MOST_SCORES = 2**22
"""Distances that are held at once."""
SPREAD = 0.5
"""How far from 1 a sharpening is expected, as the standard deviation of its logarithm."""
FOR_EACH = 0.5
"""Rows that head and vote are taken to have won each before any held-out row is asked."""

Keys = tuple[Tensor, Tensor, Tensor | None]
"""Where rows lie ``(N, K)``, their labels, and minus infinity where a place is empty ``(N,)``."""


def weigh(model: "VotingMemory", vote: VotingRead, held_out: EncodedRows) -> float:
    """Set sharpness and share of the vote by held-out rows; return their loss with both."""
    rows, queries = _keys_of(model, vote), vote.keys(held_out.features)
    _sharpen(model, vote, rows, held_out.at_most(MOST_HELD_OUT))
    said = answered(vote, rows, queries, _chosen(model, vote, rows, queries))
    head = complete_head(model.head_logits(held_out.features), said, model.target)
    target = model.target
    shares = fitted_shares(
        [head, said], held_out.y, target, counts=held_out.weight, favour=(FOR_EACH, FOR_EACH)
    )
    vote.share.fill_(shares[1])
    return held_out.mean(target.loss(target.mixed([head, said], shares), held_out.y))


def _sharpen(
    model: "VotingMemory", vote: VotingRead, rows: list[Keys], held_out: EncodedRows
) -> None:
    """Give the learned sharpness the factor with the least loss, near 1 if rows are few."""
    learned = float(vote.log_sharpness.clamp(-MOST_SHARPENED, MOST_SHARPENED))
    queries = vote.keys(held_out.features)
    chosen = _chosen(model, vote, rows, queries)  # the nearest stay so however sharp the vote

    def cost(more: float) -> float:
        vote.log_sharpness.fill_(learned + more)
        each = model.target.loss(answered(vote, rows, queries, chosen), held_out.y)
        return held_out.mean(each) * len(each) + more**2 / (2 * SPREAD**2)

    vote.log_sharpness.fill_(learned + lowest(cost, -2.0, 2.0, rounds=10))


def _keys_of(model: "VotingMemory", vote: VotingRead) -> list[Keys]:
    """Return keys, labels and bias of the stored rows, and of the slots."""
    found: list[Keys] = []
    if model.real is not None:
        queue = model.real.queue
        found.append((in_blocks(vote.keys, queue.features), queue.labels, model.real.unseen()))
    learned = model.synthetic
    if learned is not None and learned.slots is not None:
        found.append((vote.keys(learned.slots), learned.labels, None))
    return found


def _chosen(
    model: "VotingMemory", vote: VotingRead, rows: list[Keys], queries: Tensor
) -> Tensor | None:
    """Return the places of the stored rows that are to vote, ``(1, B, K)``; None for all."""
    if model.real is None or model.real.nearest is None:
        return None
    return model.real.places(vote.queries(queries), vote.at(*rows[0]))


def answered(
    vote: VotingRead, rows: list[Keys], queries: Tensor, chosen: Tensor | None = None
) -> Tensor:
    """Return the vote on rows with keys ``(N, K)`` that are not in the memory, as logits.

    Args:
        vote: The read.
        rows: Groups of rows that vote.
        queries: Keys of those that are asked about, ``(B, K)``.
        chosen: Which rows of the first group vote on each, ``(1, B, k)``; None for all.
    """
    groups = [vote.at(*one) for one in rows]
    size = max(1, MOST_SCORES // max(1, sum(len(keys) for keys, _, _ in rows)))
    if chosen is None:
        parts = torch.split(queries, size)
        return torch.cat([vote(part, [*groups], keys=part)[0] for part in parts])
    first, *others = groups
    both = zip(
        torch.split(queries, QUERIES_AT_ONCE),
        torch.split(chosen, QUERIES_AT_ONCE, dim=1),
        strict=True,
    )
    return torch.cat([vote(q, [first.at(near), *others], keys=q)[0] for q, near in both])
