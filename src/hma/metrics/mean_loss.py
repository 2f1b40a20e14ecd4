"""Mean of the target's own loss: what any kind of label can be scored by."""

from torch import Tensor

from hma.metrics.metric import Metric, OfWeights, weighted_mean
from hma.targets import Target


def _weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
    losses = target.loss(outputs.double(), labels).numpy()
    return lambda weights: weighted_mean(losses, weights)


MEAN_LOSS = Metric(
    name="loss",
    title="loss",
    targets=(Target,),
    weighted=_weighted,
    larger_is_better=False,
    recorded=False,
    followed=True,
)
