"""Predictions of classes beside the true ones, and how often each class was right, true, said."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.extras import needed
from hma.metrics.metric import Floats, OfWeights, Weighted
from hma.targets import Target

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
