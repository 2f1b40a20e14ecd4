"""The vote while keys learn: what :mod:`hma.vote.read` computes, in fewer operations."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, pad

from hma.vote.read import NOBODY, VotingRead

FAR = 1e12
"""Squared distance of a row that is hidden; finite, so that its gradient is 0 and not unknown."""
ROUNDING = 1e-6
"""What is left of a normalised column that is padding."""


class Voters(NamedTuple):
    """Rows that may answer.

    Shape:
        - ``keys`` ``(N, K)``; ``ballots`` ``(N, V)``; ``squares``: squared lengths of the keys,
          ``(N,)`` or for each query ``(B, N)``, and :data:`FAR` more where a row is hidden.
    """

    keys: Tensor
    ballots: Tensor
    squares: Tensor


def voted(vote: VotingRead, keys: Tensor, rows: list[Voters]) -> Tensor:
    """Return the vote on queries with ``keys`` ``(B, K)`` as logits, as ``vote`` itself does."""
    apart = [torch.addmm(some.squares, keys, some.keys.T, alpha=-2) for some in rows]  # (B, N)
    scores = -vote.sharpness * (torch.cat(apart, dim=1) + squares(keys)[:, None])
    weights = pad(scores, (1, 0), value=NOBODY).softmax(dim=1)  # (B, 1 + N)
    ballots = [some.ballots for some in rows]
    counted = weights @ torch.cat([ballots[0].new_zeros(1, ballots[0].shape[1]), *ballots])
    return vote.target.tallied(counted)


def squares(keys: Tensor) -> Tensor:
    """Return the squared length of each key, ``(N, K)`` to ``(N,)``."""
    return keys.square().sum(dim=1)


def normalised(vote: VotingRead, features: Tensor) -> Tensor:
    """Return what keys are made of before any weight, ``(N, F)`` to ``(N, E)``."""
    view = features[:, vote.first :]
    return layer_norm(view, view.shape[1:], eps=vote.norm.eps)


def used_columns(largest: list[Tensor]) -> int:
    """Return how many columns of normalised rows there are before the last ones that are all 0.

    Args:
        largest: The largest size in each column, ``(E,)``, of each group of rows.
    """
    used = torch.stack(largest).amax(dim=0) > ROUNDING
    return max(used.nonzero()[:, 0].tolist(), default=0) + 1


def keys_of_normalised(vote: VotingRead, view: Tensor, kept: Tensor | None = None) -> Tensor:
    """Return the keys that ``vote.keys`` gives, of rows that are normalised already.

    The weights of the normalisation move into those of the keys, so that rows, which do not learn,
    take part in one product.

    Args:
        vote: Whose keys.
        view: ``(N, E)``, or its first columns if the others are 0.
        kept: What each column counts, ``(E,)``; None for 1.
    """
    weight, used = vote.to_keys.weight, view.shape[1]
    scale: Tensor = vote.norm.weight
    shift: Tensor = vote.norm.bias
    if kept is not None:
        scale, shift = scale * kept, shift * kept
    shared = torch.addmv(vote.to_keys.bias, weight, shift)  # (K,), the same for every row
    return torch.addmm(shared, view, (weight[:, :used] * scale[:used]).T)
