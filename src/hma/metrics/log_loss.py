"""Mean negative logarithm of the probability that was given to what is true."""

import numpy as np
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from hma.metrics.class_answers import class_answers
from hma.metrics.metric import Floats, Metric, OfWeights, ratio
from hma.targets import Classes, SoftClasses, Target, YesNo


def _log_loss(outputs: Tensor, labels: Tensor, target: Target) -> float:
    if isinstance(target, Classes):
        return float(cross_entropy(*class_answers(outputs, labels)))
    return LOG_LOSS.of_equal_rows(outputs, labels, target)


def _weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
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
    weighted=_weighted,
    formula=_log_loss,
    larger_is_better=False,
    followed=True,
)
