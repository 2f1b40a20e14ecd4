"""How well scores rank rows: the area under the ROC curve, and average precision.

Of several classes it is the mean of each against the rest, of several yes/no labels the mean over
the labels; what does not have rows on both sides is left out, and NaN where nothing is left.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from hma.metrics.classes import class_answers
from hma.metrics.metric import Booleans, Floats, Metric, OfWeights, Weighted, ratio
from hma.targets import Classes, SoftClasses, Target, YesNo

Curve = Callable[[Booleans, Floats, Floats], Floats]
"""Positive rows ``(N,)``, scores ``(N,)`` and weights ``(N, R)`` to ``(R,)``, NaN if undefined."""


def area(positive: Booleans, scores: Floats, weights: Floats) -> Floats:
    """Share of pairs in which the positive row scores higher; an equal score counts half."""
    no = np.flatnonzero(~positive)
    no = no[np.argsort(scores[no], kind="stable")]
    cumulative = np.zeros((len(no) + 1, weights.shape[1]))
    np.cumsum(weights[no], axis=0, out=cumulative[1:])
    below = cumulative[np.searchsorted(scores[no], scores[positive], side="left")]
    up_to = cumulative[np.searchsorted(scores[no], scores[positive], side="right")]
    won = (weights[positive] * (below + up_to)).sum(axis=0) / 2
    pairs = weights[positive].sum(axis=0) * cumulative[-1]
    return ratio(won, pairs, otherwise=np.nan)


def average_precision(positive: Booleans, scores: Floats, weights: Floats) -> Floats:
    """Mean over the positive rows of the precision among rows that score no lower."""
    above, hits = _counts_from_the_top(positive, scores, weights)
    new = np.diff(hits, axis=0, prepend=0.0)
    precision = ratio(hits, above, otherwise=0.0)
    yes, rows = hits[-1], above[-1]
    total = (precision * new).sum(axis=0)
    return ratio(total, yes, where=(yes > 0) & (rows > yes), otherwise=np.nan)


def precision_at_share(positive: Booleans, scores: Floats, weights: Floats) -> Floats:
    """Precision among the highest scores, as many rows as are positive; equal scores share."""
    above, hits = _counts_from_the_top(positive, scores, weights)
    yes, rows = hits[-1], above[-1]
    curves = zip(yes, above.T, hits.T, strict=True)
    found = [np.interp(many, [0.0, *held], [0.0, *hit]) for many, held, hit in curves]
    return ratio(np.array(found), yes, where=(yes > 0) & (rows > yes), otherwise=np.nan)


def _counts_from_the_top(
    positive: Booleans, scores: Floats, weights: Floats
) -> tuple[Floats, Floats]:
    """Return the weight of all rows and of positive ones at or above each score, highest first."""
    order = np.argsort(-scores, kind="stable")
    last_of_equals = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    above = np.cumsum(weights[order], axis=0)[last_of_equals]  # (thresholds, R)
    hits = np.cumsum(weights[order] * positive[order, None], axis=0)[last_of_equals]
    return above, hits


def _weighted(curve: Curve) -> Weighted:
    def weighted(outputs: Tensor, labels: Tensor, target: Target) -> OfWeights:
        columns = list(_columns(outputs, labels, target))

        def of(weights: Floats) -> Floats:
            each = [np.full(weights.shape[1], np.nan)]  # nothing is defined without columns
            each += [curve(yes, scores, weights[rows]) for rows, yes, scores in columns]
            return _mean_of_defined(np.stack(each))

        return of

    return weighted


def _columns(
    outputs: Tensor, labels: Tensor, target: Target
) -> Iterator[tuple[Booleans, Booleans, Floats]]:
    """Yield which rows count, which of them are positive, and their scores, column by column."""
    if isinstance(target, YesNo):
        y = target.check(labels, len(labels))
        for place in range(target.count):
            known = ~y[:, place].isnan()
            if known.any():
                scores = outputs.double()[known, place].numpy()
                yield known.numpy(), (y[known, place] == 1).numpy(), scores
        return
    answers = class_answers(outputs, labels)
    every, ids = np.ones(len(answers.ids), dtype=np.bool_), answers.ids.numpy()
    sure = answers.log_probabilities
    if sure.shape[1] == 2:
        yield every, ids == 1, sure[:, 1] - sure[:, 0]
        return
    for label in range(sure.shape[1]):
        yield every, ids == label, sure[:, label]


def _mean_of_defined(values: Floats) -> Floats:
    """Return the mean over columns ``(K, R) -> (R,)`` of what is not NaN."""
    defined = ~np.isnan(values)
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    return ratio(total, count, otherwise=np.nan)


def _auroc(outputs: Tensor, labels: Tensor, target: Target) -> float:
    if isinstance(target, YesNo):
        return AUROC.of_equal_rows(outputs, labels, target)
    logits, ids = class_answers(outputs, labels)
    present = torch.unique(ids).tolist()
    if len(present) < 2:
        return math.nan
    if logits.shape[1] == 2:
        return _binary_auroc(logits[:, 1] - logits[:, 0], ids == 1)
    chances = logits.log_softmax(1)
    each = [_binary_auroc(chances[:, label], ids == label) for label in present]
    return sum(each) / len(each)


def _binary_auroc(score: Tensor, positive: Tensor) -> float:
    """Return the area in single precision, as epochs have always been selected by it."""
    _, rank = torch.unique(score, return_inverse=True)  # infinite scores have no difference
    rank, order = rank.sort(descending=True)
    last_of_equals = torch.cat([rank.diff().nonzero()[:, 0], torch.tensor([len(rank) - 1])])
    hits = torch.cat([torch.zeros(1).long(), positive[order].cumsum(0)[last_of_equals]])
    misses = torch.cat([torch.zeros(1).long(), last_of_equals + 1 - hits[1:]])
    return float(torch.trapezoid(hits / hits[-1], misses / misses[-1]))


AUROC = Metric(
    name="auroc",
    title="AUROC",
    targets=(Classes, SoftClasses, YesNo),
    weighted=_weighted(area),
    formula=_auroc,
    scale=100.0,
    digits=2,
)
AVERAGE_PRECISION = Metric(
    name="average precision",
    title="average precision",
    targets=(YesNo,),
    weighted=_weighted(average_precision),
    scale=100.0,
    digits=2,
)
R_PRECISION = Metric(
    name="r-precision",
    title="precision at the share of yes",
    targets=(YesNo,),
    weighted=_weighted(precision_at_share),
    scale=100.0,
    digits=2,
    recorded=False,
)
