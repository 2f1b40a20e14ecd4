"""Mean of the target's own loss: what any kind of label can be scored by."""

import numpy as np
from torch import Tensor

from hma.metrics.metric import Floats, Metric, OfWeights
from hma.targets import Target


def _weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
    losses = target.loss(outputs.double(), labels).numpy()

    def of(weights: Floats) -> Floats:
        return np.asarray(losses @ weights / weights.sum(axis=0))

    return of


MEAN_LOSS = Metric(
    name="loss",
    title="loss",
    targets=(Target,),
    weighted=_weighted,
    larger_is_better=False,
    recorded=False,
    followed=True,
)
