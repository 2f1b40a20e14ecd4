"""What was given to the truth: log loss, the target's own loss, and that of calibrated logits."""

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from hma.metrics.classes import class_answers
from hma.metrics.metric import Floats, Metric, OfWeights, ratio, weighted_mean
from hma.targets import Classes, SoftClasses, Target, YesNo


def _log_loss(outputs: Tensor, labels: Tensor, target: Target) -> float:
    if isinstance(target, Classes):
        return float(cross_entropy(*class_answers(outputs, labels)))
    return LOG_LOSS.of_equal_rows(outputs, labels, target)


def _weighted_log_loss(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
    losses, counts = _losses(outputs.double(), labels, target)
    return lambda weights: ratio(losses @ weights, counts @ weights, otherwise=np.nan)


def _losses(outputs: Tensor, labels: Tensor, target: Target) -> tuple[Floats, Floats]:
    """Return the sum of the losses of each row and the number of labels it has, ``(N,)`` each."""
    if isinstance(target, YesNo):
        y = target.check(labels, len(labels))
        known = ~y.isnan()
        each = binary_cross_entropy_with_logits(
            outputs, y.nan_to_num().to(outputs.dtype), reduction="none"
        )
        return (each * known).sum(1).numpy(), known.sum(1).double().numpy()
    if isinstance(target, SoftClasses):
        each = target.loss(outputs, labels)
    else:
        each = cross_entropy(*class_answers(outputs, labels), reduction="none")
    return each.numpy(), np.ones(len(each))


LOG_LOSS = Metric(
    name="nll",
    title="log loss",
    targets=(Classes, SoftClasses, YesNo),
    weighted=_weighted_log_loss,
    formula=_log_loss,
    larger_is_better=False,
    followed=True,
)


def _weighted_mean_loss(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
    losses = target.loss(outputs.double(), labels).numpy()
    return lambda weights: weighted_mean(losses, weights)


MEAN_LOSS = Metric(
    name="loss",
    title="loss",
    targets=(Target,),
    weighted=_weighted_mean_loss,
    larger_is_better=False,
    recorded=False,
    followed=True,
)


def minimise(cost: Callable[[float], float], low: float, high: float, rounds: int = 60) -> float:
    """Return where ``cost`` is least between two ends, which come nearer by a third each round.

    Example:
        >>> round(minimise(lambda x: (x - 2) ** 2, 0.0, 10.0), 6)
        2.0
    """
    for _ in range(rounds):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if cost(left) <= cost(right):
            high = right
        else:
            low = left
    return (low + high) / 2


SPREAD = 0.5
"""How far from 1 a temperature is expected, as the standard deviation of its logarithm."""
MOST = 10.0


def temperature_for(
    logits: Tensor, labels: Tensor, target: Target, weight: Tensor | None = None
) -> float:
    r"""Return the temperature that gives held-out rows the least loss, near 1 if they are few.

    .. math:: T = \arg\min \sum_i \ell(z_i / T, y_i) + \frac{(\log T)^2}{2 \cdot 0.5^2}

    Args:
        logits: Of held-out rows, ``(N, C)``.
        labels: Their labels.
        target: What a label is; numbers have no temperature, so theirs is 1.
        weight: What each row counts, ``(N,)``; None for 1.

    Example:
        >>> import torch
        >>> from hma.targets import Classes
        >>> sure = torch.tensor([[9.0, 0.0]]).repeat(40, 1)
        >>> temperature_for(sure, torch.tensor([0] * 30 + [1] * 10), Classes(2)) > 4
        True
    """
    if not target.gives_probabilities or len(labels) == 0:
        return 1.0
    logits = logits.detach().cpu().double()
    counts = 1.0 if weight is None else weight.cpu()

    def cost(log_temperature: float) -> float:
        each = target.loss(logits / math.exp(log_temperature), labels.cpu())
        return float((each * counts).sum()) + log_temperature**2 / (2 * SPREAD**2)

    return math.exp(minimise(cost, -math.log(MOST), math.log(MOST)))


def _calibrated_loss(outputs: Tensor, labels: Tensor, target: Target) -> float:
    cooled = outputs / temperature_for(outputs, labels, target)
    return MEAN_LOSS.of_equal_rows(cooled, labels, target)


CALIBRATED_LOSS = Metric(
    name="calibrated_loss",
    title="calibrated loss",
    targets=(Target,),
    weighted=MEAN_LOSS.weighted,
    formula=_calibrated_loss,
    larger_is_better=False,
    recorded=False,
)
