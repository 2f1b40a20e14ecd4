"""From logits and labels to scores, intervals and tests: what the headline is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hma.errors import UserError
from hma.report.metrics import metrics_of
from hma.report.run.run_report import MEMORY, PLAIN, Comparison, Result, Trial
from hma.report.statistics import (
    Floats,
    Integers,
    Interval,
    Metric,
    bootstrap,
    calibration,
    mcnemar,
    percentile_interval,
    wilson,
)

RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What was said of the rows of one test set.

    Args:
        labels: True class ids ``(N,)``.
        memory: Logits of HMA ``(N, C)`` (or ``(N, 1)``) in each inference context, the model's
            own context first.
        plain: The same of the plain backbone; empty where none was trained.
        features: Features of the rows as HMA's backbone makes them, ``(N, F)``; None leaves
            out what needs them (attention, examples, maps).
        orders: In which order a context went through the rows, ``(N,)``; as given here if not.
    """

    labels: Tensor
    memory: Mapping[str, Tensor]
    plain: Mapping[str, Tensor]
    features: Tensor | None = None
    orders: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class _Judged:
    method: str
    context: str
    log_probabilities: Floats
    metrics: dict[str, Metric]


def compare(
    name: str, answers: Answers, metric: str, *, classes: int, resamples: int, seed: int
) -> Trial:
    """Score both methods on a test set, and HMA in every context against the plain backbone.

    Args:
        name: Name of the test set.
        answers: Labels and logits.
        metric: What the verdict is about.
        classes: Number of classes, ``C``.
        resamples: Draws of the bootstrap; the same rows for every number.
        seed: Decides the draws.
    """
    if not answers.memory:
        raise ValueError(f"memory must hold the logits of HMA on {name!r}, got none")
    labels = _checked_labels(name, answers.labels, classes)
    judged = [
        _judge(name, method, context, logits, labels, classes, metric)
        for method, said in ((PLAIN, answers.plain), (MEMORY, answers.memory))
        for context, logits in said.items()
    ]
    asked = [m for one in judged for m in one.metrics.values()]
    drawn = bootstrap(asked, rows=len(labels), resamples=resamples, seed=seed)
    count = len(judged[0].metrics)
    replicates = [drawn[i * count : (i + 1) * count] for i in range(len(judged))]
    plain = [i for i, one in enumerate(judged) if one.method == PLAIN][:1]
    return Trial(
        name=name,
        rows=len(labels),
        results=tuple(
            _result(one, labels, own, classes) for one, own in zip(judged, replicates, strict=True)
        ),
        comparisons=tuple(
            _comparison(judged[i], one, labels, own - replicates[i])
            for i in plain
            for one, own in zip(judged, replicates, strict=True)
            if one.method == MEMORY
        ),
    )


def log_probabilities_of(logits: Tensor) -> Floats:
    """Return the logarithm of each class's probability, two columns for one logit.

    Logarithms keep apart what is too sure to tell apart as probabilities.

    Example:
        >>> np.exp(log_probabilities_of(torch.tensor([[0.0]]))).round(6).tolist()
        [[0.5, 0.5]]
    """
    wide = logits.detach().cpu().double()
    if wide.shape[1] == 1:
        wide = torch.cat([torch.zeros_like(wide), wide], dim=1)  # (N, 1) -> (N, 2)
    return wide.log_softmax(dim=1).numpy()


def _judge(
    name: str,
    method: str,
    context: str,
    logits: Tensor,
    labels: Integers,
    classes: int,
    metric: str,
) -> _Judged:
    where = f"logits of {method} on {name!r} in context {context!r}"
    if logits.ndim != 2 or len(logits) != len(labels):
        raise ValueError(f"{where} must have shape ({len(labels)}, C), got {tuple(logits.shape)}")
    sure = log_probabilities_of(logits)
    if sure.shape[1] != classes:
        raise ValueError(f"{where} must tell {classes} classes apart, got {tuple(logits.shape)}")
    bad = int((~np.isfinite(sure).all(axis=1)).sum())
    if bad:
        raise UserError(
            f"{where} are not finite in {bad} of {len(labels)} rows, so training diverged and "
            "there is nothing to report; train again with a smaller learning rate"
        )
    return _Judged(method, context, sure, metrics_of(logits, torch.from_numpy(labels), metric))


def _checked_labels(name: str, labels: Tensor, classes: int) -> Integers:
    found: Integers = labels.detach().cpu().long().numpy()
    if len(found) == 0:
        raise UserError(f"the test set {name!r} has no rows, so there is nothing to compare on")
    wrong = found[(found < 0) | (found >= classes)]
    if len(wrong):
        raise UserError(
            f"labels of the test set {name!r} must lie between 0 and {classes - 1}, got "
            f"{int(wrong[0])}; leave rows without a known label out"
        )
    return found


def _result(one: _Judged, labels: Integers, replicates: Floats, classes: int) -> Result:
    once = np.ones((len(labels), 1))
    scores = {
        name: percentile_interval(float(m(once)[0]), drawn)
        for (name, m), drawn in zip(one.metrics.items(), replicates, strict=True)
    }
    predictions = one.log_probabilities.argmax(axis=1)
    right = int((predictions == labels).sum())
    scores["accuracy"] = wilson(right, len(labels))  # a share: better than the bootstrap at 100%
    cells = np.bincount(labels * classes + predictions, minlength=classes * classes)
    return Result(
        method=one.method,
        context=one.context,
        scores=scores,
        confusion=cells.reshape(classes, classes).astype(np.int64),
        calibration=calibration(np.exp(one.log_probabilities), labels),
    )


def _comparison(
    plain: _Judged, memory: _Judged, labels: Integers, replicates: Floats
) -> Comparison:
    once = np.ones((len(labels), 1))
    differences: dict[str, Interval] = {}
    for (name, m), drawn in zip(memory.metrics.items(), replicates, strict=True):
        value = float(m(once)[0] - plain.metrics[name](once)[0])
        differences[name] = percentile_interval(value, drawn)
    plain_right = plain.log_probabilities.argmax(axis=1) == labels
    memory_right = memory.log_probabilities.argmax(axis=1) == labels
    only_plain = int((plain_right & ~memory_right).sum())
    only_memory = int((memory_right & ~plain_right).sum())
    return Comparison(
        context=memory.context,
        differences=differences,
        only_plain=only_plain,
        only_memory=only_memory,
        p_value=mcnemar(only_plain, only_memory),
    )
