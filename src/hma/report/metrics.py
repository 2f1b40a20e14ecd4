"""Metrics of weighted rows, so that one formula serves a test set and all its resamples."""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hma.extras import needed
from hma.report.statistics import Floats, Integers, Metric

LARGER_IS_BETTER = {
    "accuracy": True,
    "balanced accuracy": True,
    "macro F1": True,
    "matthews": True,
    "auroc": True,
    "log loss": False,
}


def metrics_of(labels: Integers, log_probabilities: Floats, headline: str) -> dict[str, Metric]:
    """Return the metrics worth showing, the ``headline`` first.

    Args:
        labels: True class ids ``(N,)``.
        log_probabilities: Logarithm of the probability of each class, ``(N, C)``.
        headline: 'accuracy', 'auroc' or 'matthews': what the task selects by.

    Example:
        >>> sure = np.log([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
        >>> found = metrics_of(np.array([0, 1, 1, 1]), sure, "accuracy")
        >>> {name: round(float(m(np.ones((4, 1)))[0]), 3) for name, m in found.items()}
        {'accuracy': 0.75, 'balanced accuracy': 0.833, 'macro F1': 0.733, 'auroc': 1.0, \
'log loss': 0.4}
    """
    if headline not in LARGER_IS_BETTER:
        known = ", ".join(map(repr, LARGER_IS_BETTER))
        raise ValueError(f"headline must be one of {known}, got {headline!r}")
    classes = log_probabilities.shape[1]
    predictions = log_probabilities.argmax(axis=1)
    losses = -log_probabilities[np.arange(len(labels)), labels]
    found: dict[str, Metric] = {
        "accuracy": partial(_accuracy, right=(predictions == labels).astype(np.float64)),
        "balanced accuracy": partial(_balanced, labels, predictions, classes),
        "macro F1": partial(_macro_f1, labels, predictions, classes),
        "matthews": partial(_matthews, labels, predictions, classes),
        "auroc": partial(_auroc, labels, log_probabilities),
        "log loss": partial(_log_loss, losses=losses),
    }
    shown = {"accuracy", "balanced accuracy", "macro F1", "log loss", headline}
    if classes == 2:
        shown.add("auroc")
    names = [headline, *(name for name in found if name in shown and name != headline)]
    return {name: found[name] for name in names}


def _accuracy(weights: Floats, right: Floats) -> Floats:
    return np.asarray(right @ weights / weights.sum(axis=0))


def _log_loss(weights: Floats, losses: Floats) -> Floats:
    return np.asarray(losses @ weights / weights.sum(axis=0))


class Counts(NamedTuple):
    """For each class of each sample ``(C, R)``: weight right, truly it, called it."""

    right: Floats
    true: Floats
    said: Floats


def _counts(labels: Integers, predictions: Integers, classes: int, weights: Floats) -> Counts:
    right = predictions == labels
    return Counts(
        _sums(weights[right], labels[right], classes),
        _sums(weights, labels, classes),
        _sums(weights, predictions, classes),
    )


def _sums(weights: Floats, groups: Integers, count: int) -> Floats:
    """Return the weight of each group, ``(N, R) -> (count, R)``."""
    rows = np.arange(len(groups))
    cells = (np.ones(len(groups)), (groups, rows))
    members = needed("scipy.sparse", "the report").csr_array(cells, shape=(count, len(groups)))
    return np.asarray(members @ weights)


def _balanced(labels: Integers, predictions: Integers, classes: int, weights: Floats) -> Floats:
    """Mean recall over the classes that occur."""
    right, true, _ = _counts(labels, predictions, classes, weights)
    recall = np.divide(right, true, out=np.zeros_like(right), where=true > 0)
    return np.asarray(recall.sum(axis=0) / (true > 0).sum(axis=0))


def _macro_f1(labels: Integers, predictions: Integers, classes: int, weights: Floats) -> Floats:
    """Mean F1 over the classes that occur or are predicted."""
    right, true, said = _counts(labels, predictions, classes, weights)
    either = true + said
    f1 = np.divide(2 * right, either, out=np.zeros_like(right), where=either > 0)
    return np.asarray(f1.sum(axis=0) / (either > 0).sum(axis=0))


def _matthews(labels: Integers, predictions: Integers, classes: int, weights: Floats) -> Floats:
    """Correlation of truth and prediction; 0 where either is constant."""
    right, true, said = _counts(labels, predictions, classes, weights)
    total = weights.sum(axis=0)
    shared = right.sum(axis=0) * total - (true * said).sum(axis=0)
    spread_true = total**2 - (true**2).sum(axis=0)
    spread_said = total**2 - (said**2).sum(axis=0)
    scale = np.sqrt(spread_true * spread_said)
    return np.asarray(np.divide(shared, scale, out=np.zeros_like(shared), where=scale > 0))


def _auroc(labels: Integers, sure: Floats, weights: Floats) -> Floats:
    """Area under the ROC curve; of more than two classes the mean of each against the rest.

    Classes without rows on both sides are left out; NaN where none is left.
    """
    if sure.shape[1] == 2:
        return _area(labels == 1, sure[:, 1] - sure[:, 0], weights)
    areas = np.stack([_area(labels == c, sure[:, c], weights) for c in range(sure.shape[1])])
    defined = ~np.isnan(areas)
    count = defined.sum(axis=0)
    total = np.where(defined, areas, 0.0).sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0))


def _area(positive: NDArray[np.bool_], scores: Floats, weights: Floats) -> Floats:
    """Share of pairs in which the positive row scores higher; an equal score counts half."""
    no = np.flatnonzero(~positive)
    no = no[np.argsort(scores[no], kind="stable")]
    cumulative = np.zeros((len(no) + 1, weights.shape[1]))
    np.cumsum(weights[no], axis=0, out=cumulative[1:])
    below = cumulative[np.searchsorted(scores[no], scores[positive], side="left")]
    up_to = cumulative[np.searchsorted(scores[no], scores[positive], side="right")]
    won = (weights[positive] * (below + up_to)).sum(axis=0) / 2
    pairs = weights[positive].sum(axis=0) * cumulative[-1]
    return np.asarray(np.divide(won, pairs, out=np.full(len(won), np.nan), where=pairs > 0))
