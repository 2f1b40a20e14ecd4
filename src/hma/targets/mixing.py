"""One answer of several: weighted means of outputs and of probabilities."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Shares = Sequence[float] | Tensor
"""What each answer counts, ``(M,)`` or for each row ``(M, B)``: at least 0, summing to 1."""


def mean_output(logits: Sequence[Tensor], shares: Shares) -> Tensor:
    """Return the weighted mean of outputs, ``(B, outputs)`` each."""
    stacked, weights = _stacked(logits, shares)
    return (weights * stacked).sum(dim=0)


def log_mean_probability(logits: Sequence[Tensor], shares: Shares) -> Tensor:
    """Return the logarithm of the weighted mean probability of each class, ``(B, C)``."""
    stacked, weights = _stacked(logits, shares)
    return (stacked.log_softmax(dim=2) + weights.log()).logsumexp(dim=0)  # (M, B, C) -> (B, C)


def log_odds_of_mean(logits: Sequence[Tensor], shares: Shares) -> Tensor:
    """Return the log odds of the weighted mean probability of each yes, ``(B, T)``."""
    stacked, weights = _stacked(logits, shares)
    yes, no = ((logsigmoid(said) + weights.log()).logsumexp(dim=0) for said in (stacked, -stacked))
    return yes - no


def _stacked(logits: Sequence[Tensor], shares: Shares) -> tuple[Tensor, Tensor]:
    """Return the answers as ``(M, B, outputs)`` and their shares as ``(M, 1 or B, 1)``."""
    if len(logits) == 0 or len(shares) != len(logits):
        raise ValueError(
            f"shares must hold one number for each of {len(logits)} answers, got {len(shares)}"
        )
    stacked = torch.stack(list(logits))
    stacked = stacked.to(torch.promote_types(stacked.dtype, torch.float32))
    weights = torch.as_tensor(shares, dtype=stacked.dtype, device=stacked.device)
    return stacked, weights.reshape(len(logits), -1, 1)
