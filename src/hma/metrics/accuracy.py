"""Share of rows whose class is right."""

from hma.metrics.class_answers import ClassAnswers, of_classes
from hma.metrics.metric import Floats, Metric, weighted_mean
from hma.targets import Classes, SoftClasses


def _accuracy(answers: ClassAnswers, weights: Floats) -> Floats:
    return weighted_mean((answers.predicted == answers.ids).double().numpy(), weights)


ACCURACY = Metric(
    name="accuracy",
    title="accuracy",
    targets=(Classes, SoftClasses),
    weighted=of_classes(_accuracy),
    scale=100.0,
    digits=2,
    share=True,
    interval="wilson",
    followed=True,
)
