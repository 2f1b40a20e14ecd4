"""Mean loss of logits divided by one number that the rows themselves decide."""

import math

from torch import Tensor

from hma.metrics.line_search import lowest
from hma.metrics.mean_loss import MEAN_LOSS
from hma.metrics.metric import Metric
from hma.targets import Number, Target

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
    if isinstance(target, Number) or len(labels) == 0:
        return 1.0
    logits = logits.detach().cpu().double()
    counts = 1.0 if weight is None else weight.cpu()

    def cost(log_temperature: float) -> float:
        each = target.loss(logits / math.exp(log_temperature), labels.cpu())
        return float((each * counts).sum()) + log_temperature**2 / (2 * SPREAD**2)

    return math.exp(lowest(cost, -math.log(MOST), math.log(MOST)))


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
