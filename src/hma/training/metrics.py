"""Scores of predictions: accuracy, AUROC and Matthews by torchmetrics, and the mean log loss."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hma.training.extras import torchmetrics_classification

METRICS = ("accuracy", "auroc", "matthews", "nll")


def scores(logits: Tensor, labels: Tensor, names: Iterable[str] = METRICS) -> dict[str, float]:
    """Return each named score of ``logits`` ``(N, C)`` against class ids ``(N,)``.

    One logit is a binary problem. AUROC of several classes is the mean of one class against the
    rest over the classes that occur; it is NaN where only one occurs. Matthews is 0 where
    predictions or labels hold one class only.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.0]])
        >>> found = scores(logits, torch.tensor([0, 1, 0, 1]))
        >>> {name: round(value, 4) for name, value in found.items()}
        {'accuracy': 0.75, 'auroc': 1.0, 'matthews': 0.5774, 'nll': 0.4319}
    """
    logits, labels = logits.detach().cpu().double(), labels.cpu().long()
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)  # (N, 1) -> (N, 2)
    _check(logits, labels)  # once, and not again by torchmetrics for every score
    return {name: _SCORES[name](logits, labels) for name in names}


def _check(logits: Tensor, labels: Tensor) -> None:
    rows, classes = logits.shape
    if labels.shape != (rows,) or rows == 0:
        raise ValueError(
            f"labels must have one entry for each of 1 or more rows of logits, got shapes "
            f"{tuple(labels.shape)} and {tuple(logits.shape)}"
        )
    least, most = (int(end) for end in labels.aminmax())
    if least < 0 or most >= classes:
        raise ValueError(f"labels must be from 0 to {classes - 1}, got {least} to {most}")


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    metric = torchmetrics_classification().multiclass_accuracy
    options = {"num_classes": logits.shape[1], "average": "micro", "validate_args": False}
    share = float(metric(logits.argmax(1), labels, **options))
    return round(share * len(labels)) / len(labels)  # torchmetrics counts in 32 bits


def _matthews(logits: Tensor, labels: Tensor) -> float:
    predicted = logits.argmax(1)
    if len(torch.unique(predicted)) < 2 or len(torch.unique(labels)) < 2:
        return 0.0  # torchmetrics gives two classes a limit value here, scikit-learn and we 0
    metric = torchmetrics_classification().multiclass_matthews_corrcoef
    return float(metric(predicted, labels, num_classes=logits.shape[1], validate_args=False))


def _auroc(logits: Tensor, labels: Tensor) -> float:
    present = torch.unique(labels).tolist()
    if len(present) < 2:
        return math.nan
    if logits.shape[1] == 2:
        return _binary_auroc(logits[:, 1] - logits[:, 0], labels == 1)
    chances = logits.log_softmax(1)
    each = [_binary_auroc(chances[:, label], labels == label) for label in present]
    return sum(each) / len(each)


def _binary_auroc(score: Tensor, positive: Tensor) -> float:
    # as ranks in [0, 1]: torchmetrics would squash anything else, and squashing makes ties
    _, rank = torch.unique(score, return_inverse=True)
    rank = rank.double() / max(int(rank.max()), 1)
    metric = torchmetrics_classification().binary_auroc
    return float(metric(rank, positive.long(), validate_args=False))


def _nll(logits: Tensor, labels: Tensor) -> float:
    return float(cross_entropy(logits, labels))


_SCORES: dict[str, Callable[[Tensor, Tensor], float]] = {
    "accuracy": _accuracy,
    "auroc": _auroc,
    "matthews": _matthews,
    "nll": _nll,
}
