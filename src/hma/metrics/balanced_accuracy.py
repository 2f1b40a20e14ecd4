"""Mean recall over the classes that occur."""

import numpy as np

from hma.metrics.class_answers import ClassAnswers, class_counts, of_classes
from hma.metrics.metric import Floats, Metric, ratio
from hma.targets import Classes, SoftClasses


def _mean_recall(answers: ClassAnswers, weights: Floats) -> Floats:
    right, true, _ = class_counts(answers, weights)
    recall = ratio(right, true, otherwise=0.0)
    return np.asarray(recall.sum(axis=0) / (true > 0).sum(axis=0))


BALANCED_ACCURACY = Metric(
    name="balanced accuracy",
    title="balanced accuracy",
    targets=(Classes, SoftClasses),
    weighted=of_classes(_mean_recall),
    scale=100.0,
    digits=2,
    share=True,
    recorded=False,
)
