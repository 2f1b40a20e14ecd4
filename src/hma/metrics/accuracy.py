"""Share of rows whose class is right."""

import numpy as np
from torch import Tensor

from hma.extras import torchmetrics_classification
from hma.metrics.class_answers import class_answers
from hma.metrics.metric import Floats, Metric, OfWeights
from hma.targets import Classes, SoftClasses, Target


def _accuracy(outputs: Tensor, labels: Tensor, target: Target) -> float:
    logits, ids = class_answers(outputs, labels)
    metric = torchmetrics_classification().multiclass_accuracy
    options = {"num_classes": logits.shape[1], "average": "micro", "validate_args": False}
    share = float(metric(logits.argmax(1), ids, **options))
    return round(share * len(ids)) / len(ids)  # torchmetrics counts in 32 bits


def _weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
    answers = class_answers(outputs, labels)
    right = (answers.predicted == answers.ids).numpy().astype(np.float64)

    def of(weights: Floats) -> Floats:
        return np.asarray(right @ weights / weights.sum(axis=0))

    return of


ACCURACY = Metric(
    name="accuracy",
    title="accuracy",
    targets=(Classes, SoftClasses),
    weighted=_weighted,
    formula=_accuracy,
    scale=100.0,
    digits=2,
    share=True,
    interval="wilson",
    followed=True,
)
