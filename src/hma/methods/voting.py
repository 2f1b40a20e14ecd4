"""What stored neighbours answer, mixed with what the model answers, for each kind of label."""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from hma.errors import UserError
from hma.targets import Classes, Number, SoftClasses, Target, YesNo


def mixed_with_neighbours(
    logits: Tensor, labels: Tensor, weights: Tensor, share: float, target: Target
) -> Tensor:
    """Return logits of ``share * neighbours + (1 - share) * model``, ``(B, outputs)``.

    Of classes and of yes/no labels probabilities are mixed, of numbers the numbers; a yes/no label
    that no neighbour knows is left to the model.

    Args:
        logits: The model's, ``(B, outputs)``.
        labels: Of the neighbours, as a memory stores them, ``(B, K, ...)``.
        weights: What each neighbour counts, ``(B, K)``, rows that sum to 1.
        share: What the neighbours count, below 1.
        target: What a label is.

    Example:
        >>> labels, half = torch.tensor([[0, 0]]), torch.full((1, 2), 0.5)
        >>> mixed_with_neighbours(torch.zeros(1, 2), labels, half, 0.5, Classes(2)).exp()
        tensor([[0.7500, 0.2500]])
    """
    if isinstance(target, Classes):
        empty = weights.new_zeros(len(weights), target.table_rows)
        return mixed_classes(logits, empty.scatter_add(1, labels, weights), share)
    if isinstance(target, SoftClasses):
        votes = (weights[:, :, None] * labels.to(weights.dtype)).sum(dim=1)  # (B, K, C) -> (B, C)
        return mixed_classes(logits, votes, share)
    if isinstance(target, YesNo):
        return _mixed_yes_no(logits, labels.to(weights.dtype), weights, share)
    if isinstance(target, Number):
        mean = (weights * labels.to(weights.dtype)).sum(dim=1, keepdim=True)  # (B, K) -> (B, 1)
        return (1 - share) * logits + share * mean
    raise UserError(
        f"knn must know how neighbours vote on labels of the kind {target.kind!r}, and does not; "
        "use the method inside by itself"
    )


def mixed_classes(logits: Tensor, votes: Tensor, share: float) -> Tensor:
    """Return ``log(share * votes + (1 - share) * p_model)``; of one logit, the log odds."""
    if logits.shape[1] == 1:
        mixed = _mixed(logsigmoid(torch.cat([-logits, logits], dim=1)), votes, share)  # (B, 2)
        return mixed[:, 1:] - mixed[:, :1]
    return _mixed(logits.log_softmax(dim=1), votes, share)


def _mixed_yes_no(logits: Tensor, labels: Tensor, weights: Tensor, share: float) -> Tensor:
    known = weights[:, :, None] * ~labels.isnan()  # (B, K, T)
    total = known.sum(dim=1)  # (B, T)
    yes = (known * labels.nan_to_num()).sum(dim=1) / torch.where(total > 0, total, 1)
    of_model = logsigmoid(torch.stack([-logits, logits]))  # (2, B, T)
    mixed = _mixed(of_model, torch.stack([1 - yes, yes]), share)
    return torch.where(total > 0, mixed[1] - mixed[0], logits)


def _mixed(of_model: Tensor, votes: Tensor, share: float) -> Tensor:
    """Return the logarithm of the mixture of log probabilities and probabilities."""
    return torch.logaddexp(of_model + math.log1p(-share), (share * votes).log())
