"""Logistic regression; of numbers ridge regression, of several yes/no labels one for each."""

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hma.backbones.frozen import Frozen
from hma.data import Task
from hma.extras import needed
from hma.methods.learner import BackboneFactory, Method
from hma.methods.simple.simple_row import SimpleModule, Standardised, logits_of, simple_method
from hma.targets import Classes, Number, Target, YesNo

STRENGTHS = (0.003, 0.03, 0.3, 3.0, 30.0)
ABSENT = -1e4
"""Logit of a class that no training row has."""
Floats = NDArray[np.float64]
Line = tuple[Floats, Floats]
"""Weights ``(outputs, F)`` and biases ``(outputs,)``."""


@final
class LogisticRegression(SimpleModule):
    """A linear layer on standardised vectors, fitted by scikit-learn."""

    serves: ClassVar[tuple[type[Target], ...]] = (Classes, Number, YesNo)

    def __init__(self, task: Task, backbone: Frozen | None, choices: tuple[float, ...]) -> None:
        super().__init__(task, backbone, choices)
        self.standardised = Standardised(self.width, active=backbone is None)
        of_classes = isinstance(task.target, Classes)
        outputs = task.target.table_rows if of_classes else task.target.outputs
        self.linear = nn.Linear(self.width, outputs)

    def answer(self, vectors: Tensor) -> Tensor:
        """Return the logits of vectors."""
        outputs: Tensor = self.linear(self.standardised(vectors))
        if isinstance(self.target, Classes):
            return logits_of(outputs.softmax(dim=1), self.target)
        return outputs

    def candidates(self, vectors: Tensor, labels: Tensor, seed: int) -> Iterator[dict[str, Any]]:
        """Fit with one strength after the other: the higher, the larger the weights may be."""
        self.standardised.take_statistics(vectors)
        x = self.standardised(vectors.to(self.standardised.mean.device))
        for strength in self.choices:
            fit_linear(self.linear, x, labels, strength, self.target)
            yield {"C": strength}


@torch.no_grad()
def fit_linear(
    linear: nn.Linear, x: Tensor, labels: Tensor, strength: float, target: Target
) -> None:
    """Give a linear layer the weights that scikit-learn finds, with as many threads as torch has.

    Args:
        linear: With an output for each class, label or number.
        x: What it sees of the training rows, ``(N, F)``.
        labels: As the target stores them.
        strength: How large the weights may be.
        target: What a label is.
    """
    needed("sklearn", "logistic regression")  # brings threadpoolctl
    threads = needed("threadpoolctl", "logistic regression").threadpool_limits
    with threads(torch.get_num_threads()):
        weight, bias = fit_line(x.cpu().double().numpy(), labels.numpy(), strength, target)
    linear.weight.copy_(torch.from_numpy(weight))
    linear.bias.copy_(torch.from_numpy(bias))


def fit_line(
    x: Floats, y: Any, strength: float, target: Target, counts: Floats | None = None
) -> Line:
    """Return weights and biases of standardised rows: of classes, yes/no labels or a number.

    Args:
        x: The rows, ``(N, F)``.
        y: Their labels as the target stores them.
        strength: Inverse weight of the penalty on large weights.
        target: What a label is.
        counts: What each row counts, ``(N,)``; None for 1.
    """
    if isinstance(target, Number):
        ridge = needed("sklearn.linear_model", "ridge regression").Ridge(1 / strength)
        ridge.fit(x, y, sample_weight=counts)
        return ridge.coef_[None], np.array([ridge.intercept_])
    if isinstance(target, Classes):
        return _fit_classes(x, y, strength, counts, target.table_rows)
    ones = np.ones(len(x))
    lines = [_fit_label(x, label, strength, ones if counts is None else counts) for label in y.T]
    return np.stack([line[0] for line in lines]), np.array([line[1] for line in lines])


def _fit_classes(x: Floats, y: Any, strength: float, counts: Floats | None, classes: int) -> Line:
    """Return a line for each class; of two that the rows have, the first is held at zero."""
    model = _fit(x, y, strength, counts)
    weight, bias = np.zeros((classes, x.shape[1])), np.full(classes, ABSENT)
    bias[model.classes_] = 0.0
    lines = model.classes_[-len(model.coef_) :]
    weight[lines], bias[lines] = model.coef_, model.intercept_
    return weight, bias


def _fit_label(x: Floats, y: Any, strength: float, counts: Floats) -> tuple[Floats, float]:
    """Return the line of a yes/no label; one that is always the same has its own odds."""
    known = ~np.isnan(y)
    yes, no = float(counts[y == 1].sum()), float(counts[y == 0].sum())
    if yes == 0 or no == 0:
        return np.zeros(x.shape[1]), float(np.log((yes + 1) / (no + 1)))
    model = _fit(x[known], y[known], strength, counts[known])
    return model.coef_[0], float(model.intercept_[0])


def _fit(x: Floats, y: Any, strength: float, counts: Floats | None) -> Any:
    linear = needed("sklearn.linear_model", "logistic regression")
    with warnings.catch_warnings():  # where it stops early, the validation rows judge it as it is
        unfinished = needed("sklearn.exceptions", "logistic regression").ConvergenceWarning
        warnings.simplefilter("ignore", unfinished)
        model = linear.LogisticRegression(C=strength, max_iter=200)
        return model.fit(x, y, sample_weight=counts)


def logistic(
    backbone: BackboneFactory | None = None, *, strengths: tuple[float, ...] = STRENGTHS
) -> Method:
    """Return logistic regression, or ridge regression of a number.

    Args:
        backbone: Makes the encoder; a frozen one stands in front.
        strengths: Inverse weights of the penalty; the validation rows choose one.
    """
    return simple_method(LogisticRegression, backbone, tuple(strengths))
