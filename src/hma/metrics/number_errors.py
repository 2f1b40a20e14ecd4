"""Errors of predicted numbers: root mean square, mean absolute, and the share left unexplained."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from hma.metrics.metric import Floats, Metric, OfWeights, Weighted, ratio, weighted_mean
from hma.targets import Number, Target

OfNumbers = Callable[[Floats, Floats, Floats], Floats]
"""Predictions ``(N,)``, true numbers ``(N,)`` and weights ``(N, R)`` to ``(R,)``."""


def _of_numbers(formula: OfNumbers) -> Weighted:
    def weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
        said = target.expected(outputs.double()).numpy()
        true = labels.reshape(-1).double().numpy()
        return lambda weights: formula(said, true, weights)

    return weighted


def _rmse(said: Floats, true: Floats, weights: Floats) -> Floats:
    return np.sqrt(weighted_mean((said - true) ** 2, weights))


def _mae(said: Floats, true: Floats, weights: Floats) -> Floats:
    return weighted_mean(np.abs(said - true), weights)


def _r2(said: Floats, true: Floats, weights: Floats) -> Floats:
    """Return 1 less the squared error over the variance; NaN where the numbers do not vary."""
    apart = (true[:, None] - weighted_mean(true, weights)) ** 2  # (N, R)
    varied = (apart * weights).sum(axis=0)
    missed = ((said - true) ** 2) @ weights
    return 1 - ratio(missed, varied, otherwise=np.nan)


RMSE = Metric(
    name="rmse",
    title="RMSE",
    targets=(Number,),
    weighted=_of_numbers(_rmse),
    larger_is_better=False,
    followed=True,
)
MAE = Metric(
    name="mae",
    title="mean absolute error",
    targets=(Number,),
    weighted=_of_numbers(_mae),
    larger_is_better=False,
    followed=True,
)
R2 = Metric(
    name="r2",
    title="R\u00b2",
    targets=(Number,),
    weighted=_of_numbers(_r2),
    followed=True,
)
