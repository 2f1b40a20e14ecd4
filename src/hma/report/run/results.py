"""What is shown of a method's answers besides its scores, for each kind of label."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hma.metrics import METRICS
from hma.metrics.resampling import bootstrap, percentile_interval
from hma.report.run.trial import ClassResult, LabelsResult, NumberResult, Result
from hma.report.statistics import calibration
from hma.targets import Number, Target, YesNo

MakeResult = Callable[..., Result]
"""Takes the method, the context and the scores."""


def result_of(
    target: Target, logits: Tensor, labels: Tensor, draws: Mapping[str, int]
) -> MakeResult:
    """Return what makes the result of a method.

    Args:
        target: What a label is.
        logits: Of the method, ``(N, outputs)``.
        labels: As the target has them.
        draws: Resamples and seed of the bootstrap.
    """
    if isinstance(target, Number):
        said, true = target.expected(logits), labels.reshape(-1).double()
        return partial(NumberResult, said=said.numpy(), true=true.numpy())
    if isinstance(target, YesNo):
        return _labels_result(target, logits, labels, draws)
    return _class_result(logits, labels)


def log_probabilities_of(logits: Tensor) -> Tensor:
    """Return the logarithm of each class's probability, two columns for one logit.

    Logarithms keep apart what is too sure to tell apart as probabilities.

    Example:
        >>> log_probabilities_of(torch.tensor([[0.0]])).exp().tolist()
        [[0.5, 0.5]]
    """
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)  # (N, 1) -> (N, 2)
    return logits.log_softmax(dim=1)


def right_rows(logits: Tensor, labels: Tensor) -> Tensor:
    """Tell for each row whether its class is right, ``(N,)``."""
    return log_probabilities_of(logits).argmax(dim=1) == class_ids(labels)


def class_ids(labels: Tensor) -> Tensor:
    """Return the class of each row, of a soft label the likeliest, ``(N,)``."""
    return labels.argmax(dim=1) if labels.dim() == 2 else labels.long()


def _class_result(logits: Tensor, labels: Tensor) -> MakeResult:
    sure, true = log_probabilities_of(logits).numpy(), class_ids(labels).numpy()
    classes = sure.shape[1]
    cells = np.bincount(true * classes + sure.argmax(axis=1), minlength=classes * classes)
    return partial(
        ClassResult,
        confusion=cells.reshape(classes, classes).astype(np.int64),
        calibration=calibration(np.exp(sure), true),
    )


def _labels_result(
    target: YesNo, logits: Tensor, labels: Tensor, draws: Mapping[str, int]
) -> MakeResult:
    y = target.check(labels, len(labels))  # (N, T)
    area, one = METRICS["auroc"].weighted, YesNo(1)
    each = [area(logits[:, t : t + 1], y[:, t : t + 1], one) for t in range(target.count)]
    drawn = bootstrap(each, rows=len(y), **draws)
    once = np.ones((len(y), 1))
    return partial(
        LabelsResult,
        yes=(y == 1).sum(dim=0).numpy(),
        no=(y == 0).sum(dim=0).numpy(),
        auroc=tuple(
            percentile_interval(float(metric(once)[0]), found)
            for metric, found in zip(each, drawn, strict=True)
        ),
    )
