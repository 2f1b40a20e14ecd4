"""Mean recall over the classes that occur."""

import numpy as np
from torch import Tensor

from hma.metrics.class_answers import class_answers, class_counts
from hma.metrics.metric import Floats, Metric, OfWeights
from hma.targets import Classes, SoftClasses, Target


def _weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
    answers = class_answers(outputs, labels)

    def of(weights: Floats) -> Floats:
        right, true, _ = class_counts(answers, weights)
        recall = np.divide(right, true, out=np.zeros_like(right), where=true > 0)
        return np.asarray(recall.sum(axis=0) / (true > 0).sum(axis=0))

    return of


BALANCED_ACCURACY = Metric(
    name="balanced accuracy",
    title="balanced accuracy",
    targets=(Classes, SoftClasses),
    weighted=_weighted,
    scale=100.0,
    digits=2,
    share=True,
    recorded=False,
)
