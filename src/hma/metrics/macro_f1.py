"""Mean F1 over the classes that occur or are predicted."""

import numpy as np
from torch import Tensor

from hma.metrics.class_answers import class_answers, class_counts
from hma.metrics.metric import Floats, Metric, OfWeights
from hma.targets import Classes, SoftClasses, Target


def _weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
    answers = class_answers(outputs, labels)

    def of(weights: Floats) -> Floats:
        right, true, said = class_counts(answers, weights)
        either = true + said
        f1 = np.divide(2 * right, either, out=np.zeros_like(right), where=either > 0)
        return np.asarray(f1.sum(axis=0) / (either > 0).sum(axis=0))

    return of


MACRO_F1 = Metric(
    name="macro F1",
    title="macro F1",
    targets=(Classes, SoftClasses),
    weighted=_weighted,
    scale=100.0,
    digits=2,
    share=True,
    recorded=False,
)
