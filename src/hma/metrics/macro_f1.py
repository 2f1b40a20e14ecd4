"""Mean F1 over the classes that occur or are predicted."""

import numpy as np

from hma.metrics.class_answers import ClassAnswers, class_counts, of_classes
from hma.metrics.metric import Floats, Metric, ratio
from hma.targets import Classes, SoftClasses


def _macro_f1(answers: ClassAnswers, weights: Floats) -> Floats:
    right, true, said = class_counts(answers, weights)
    either = true + said
    f1 = ratio(2 * right, either, otherwise=0.0)
    return np.asarray(f1.sum(axis=0) / (either > 0).sum(axis=0))


MACRO_F1 = Metric(
    name="macro F1",
    title="macro F1",
    targets=(Classes, SoftClasses),
    weighted=of_classes(_macro_f1),
    scale=100.0,
    digits=2,
    share=True,
    recorded=False,
)
