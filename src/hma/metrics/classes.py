"""Scores of predicted classes: accuracy, mean recall, mean F1, Matthews correlation."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.extras import needed
from hma.metrics.metric import Floats, Metric, OfWeights, Weighted, ratio, weighted_mean
from hma.targets import Classes, SoftClasses, Target

Integers = NDArray[np.int64]


class ClassAnswers(NamedTuple):
    """Logits ``(N, C)`` in float64, two columns for one logit, and true class ids ``(N,)``."""

    logits: Tensor
    ids: Tensor

    @property
    def predicted(self) -> Tensor:
        """Class ids with the largest logit, ``(N,)``."""
        return self.logits.argmax(1)

    @property
    def log_probabilities(self) -> Floats:
        """Logarithms, which keep apart what is too sure to tell apart as probabilities."""
        return self.logits.log_softmax(dim=1).numpy()


def class_answers(outputs: Tensor, labels: Tensor) -> ClassAnswers:
    """Return logits and class ids that fit; of a soft label the likeliest class.

    Example:
        >>> class_answers(torch.tensor([[0.5]]), torch.tensor([1])).logits
        tensor([[0.0000, 0.5000]], dtype=torch.float64)
    """
    logits = outputs.double()
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)  # (N, 1) -> (N, 2)
    ids = labels.argmax(1) if labels.ndim == 2 else labels.long()
    least, most = (int(end) for end in ids.aminmax())
    if least < 0 or most >= logits.shape[1]:
        raise ValueError(f"labels must be from 0 to {logits.shape[1] - 1}, got {least} to {most}")
    return ClassAnswers(logits, ids)


def of_classes(formula: Callable[[ClassAnswers, Floats], Floats]) -> Weighted:
    """Return a metric's ``weighted`` from a formula of answers and weights ``(N, R)``."""

    def weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
        answers = class_answers(outputs, labels)
        return lambda weights: formula(answers, weights)

    return weighted


class ClassCounts(NamedTuple):
    """For each class under each weighting ``(C, R)``: weight right, truly it, called it."""

    right: Floats
    true: Floats
    said: Floats


def class_counts(answers: ClassAnswers, weights: Floats) -> ClassCounts:
    """Count rows of weights ``(N, R)`` class by class."""
    ids, predicted = answers.ids.numpy(), answers.predicted.numpy()
    classes, right = answers.logits.shape[1], predicted == ids
    return ClassCounts(
        _sums(weights[right], ids[right], classes),
        _sums(weights, ids, classes),
        _sums(weights, predicted, classes),
    )


def _sums(weights: Floats, groups: Integers, count: int) -> Floats:
    """Return the weight of each group, ``(N, R) -> (count, R)``."""
    cells = (np.ones(len(groups)), (groups, np.arange(len(groups))))
    members = needed("scipy.sparse", "the report").csr_array(cells, shape=(count, len(groups)))
    return np.asarray(members @ weights)


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


def _matthews(outputs: Tensor, labels: Tensor, target: Target) -> float:
    """Return the score in single precision, as epochs have always been selected by it."""
    logits, ids = class_answers(outputs, labels)
    predicted, classes = logits.argmax(1), logits.shape[1]
    if len(torch.unique(predicted)) < 2 or len(torch.unique(ids)) < 2:
        return 0.0
    counts = torch.bincount(ids * classes + predicted, minlength=classes**2)
    counts = counts.view(classes, classes).float()
    right, total, true, said = counts.trace(), counts.sum(), counts.sum(1), counts.sum(0)
    if classes == 2 and right in (0, total):
        return 1.0 if right else -1.0
    shared = right * total - sum(true * said)
    spread = (total**2 - sum(said * said)) * (total**2 - sum(true * true))
    return float(shared / spread.sqrt()) if spread else 0.0


def _weighted_matthews(answers: ClassAnswers, weights: Floats) -> Floats:
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
    weighted=of_classes(_weighted_matthews),
    formula=_matthews,
)
