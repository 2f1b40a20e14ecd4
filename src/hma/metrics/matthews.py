"""Correlation of true and predicted class; 0 where either is the same in every row."""

import numpy as np
import torch
from torch import Tensor

from hma.extras import torchmetrics_classification
from hma.metrics.class_answers import ClassAnswers, class_answers, class_counts, of_classes
from hma.metrics.metric import Floats, Metric, ratio
from hma.targets import Classes, SoftClasses, Target


def _matthews(outputs: Tensor, labels: Tensor, target: Target) -> float:
    logits, ids = class_answers(outputs, labels)
    predicted = logits.argmax(1)
    if len(torch.unique(predicted)) < 2 or len(torch.unique(ids)) < 2:
        return 0.0  # torchmetrics gives two classes a limit value here, scikit-learn and we 0
    metric = torchmetrics_classification().multiclass_matthews_corrcoef
    return float(metric(predicted, ids, num_classes=logits.shape[1], validate_args=False))


def _of_counts(answers: ClassAnswers, weights: Floats) -> Floats:
    right, true, said = class_counts(answers, weights)
    total = weights.sum(axis=0)
    shared = right.sum(axis=0) * total - (true * said).sum(axis=0)
    spread_true = total**2 - (true**2).sum(axis=0)
    spread_said = total**2 - (said**2).sum(axis=0)
    return ratio(shared, np.sqrt(spread_true * spread_said), otherwise=0.0)


MATTHEWS = Metric(
    name="matthews",
    title="Matthews correlation",
    targets=(Classes, SoftClasses),
    weighted=of_classes(_of_counts),
    formula=_matthews,
)
