"""From logits and labels to scores, intervals and tests: what the headline is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hma.errors import UserError
from hma.metrics import METRICS, OfWeights, recorded
from hma.metrics.resampling import Interval, bootstrap, percentile_interval
from hma.report.run_report import (
    MEMORY,
    PLAIN,
    ClassResult,
    Comparison,
    LabelsResult,
    NumberResult,
    Result,
    Trial,
)
from hma.report.statistics import Draws, calibration, mcnemar, wilson
from hma.targets import Classes, Number, SoftClasses, Target, YesNo

RESAMPLES = 2000
ALONE = "alone"
"""The context of candidates that have no other."""
MakeResult = Callable[..., Result]
"""Takes the method, the context and the scores."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What was said of the rows of one test set.

    Args:
        labels: True labels, class ids ``(N,)`` or as the target has them.
        memory: Logits of the memory ``(N, outputs)`` in each inference context, the model's own
            first.
        plain: The same of the plain backbone; empty where none was trained.
        others: Logits of other candidates, and of the mixture, by their names.
        features: Features of the rows as the memory's backbone makes them, ``(N, F)``; None leaves
            out what needs them (attention, examples, maps).
        orders: In which order a context went through the rows, ``(N,)``; as given here if not.
    """

    labels: Tensor
    memory: Mapping[str, Tensor]
    plain: Mapping[str, Tensor]
    others: Mapping[str, Tensor] = field(default_factory=dict)
    features: Tensor | None = None
    orders: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class _Judged:
    method: str
    context: str
    logits: Tensor
    metrics: dict[str, OfWeights]


def compare(
    name: str, answers: Answers, metric: str, *, target: Target, resamples: int, seed: int
) -> Trial:
    """Score all methods on a test set, and the others against the plain backbone.

    Args:
        name: Name of the test set.
        answers: Labels and logits.
        metric: What the verdict is about.
        target: What a label is.
        resamples: Draws of the bootstrap; the same rows for every number.
        seed: Decides the draws.
    """
    if not answers.memory:
        raise ValueError(f"memory must hold the logits of the memory on {name!r}, got none")
    labels = _checked_labels(name, answers.labels, target)
    everything: list[tuple[str, Mapping[str, Tensor]]] = [
        (PLAIN, answers.plain),
        (MEMORY, answers.memory),
        *((method, {ALONE: logits}) for method, logits in answers.others.items()),
    ]
    judged = [
        _judge(name, (method, context), logits, labels, target, metric)
        for method, said in everything
        for context, logits in said.items()
    ]
    draws = {"resamples": resamples, "seed": seed}
    drawn = Draws.of(
        [[one.metrics for one in judged]], rows=[len(labels)], resamples=resamples, seed=seed
    )
    plain = [i for i, one in enumerate(judged) if one.method == PLAIN][:1]
    return Trial(
        name=name,
        rows=len(labels),
        results=tuple(
            result_of(target, one.logits, labels, draws)(
                method=one.method, context=one.context, scores=_scores(drawn.scored(i), len(labels))
            )
            for i, one in enumerate(judged)
        ),
        comparisons=tuple(
            _comparison(judged[base], one, labels, drawn.difference(i, base), target)
            for base in plain
            for i, one in enumerate(judged)
            if one.method != PLAIN
        ),
    )


def _scores(drawn: Mapping[str, Interval], rows: int) -> dict[str, Interval]:
    """Return scores with their intervals; that of a share of rows is better known at 100%."""
    return {
        name: wilson(round(found.value * rows), rows)
        if METRICS[name].interval == "wilson"
        else found
        for name, found in drawn.items()
    }


def shown_metrics(target: Target, headline: str) -> list[str]:
    """Return the names of the metrics worth showing, the ``headline`` first.

    Example:
        >>> shown_metrics(Classes(3), "matthews")
        ['matthews', 'accuracy', 'balanced accuracy', 'macro F1', 'nll']
    """
    serving = [name for name, metric in METRICS.items() if metric.serves(target)]
    if headline not in serving:
        known = ", ".join(map(repr, serving))
        raise ValueError(f"headline must be one of {known}, got {headline!r}")
    if isinstance(target, Classes | SoftClasses):
        kept = {metric.name for metric in recorded(target) if metric.followed}
        kept |= {name for name in serving if METRICS[name].share}
        kept |= {"auroc"} if target.count <= 2 else set()
    else:
        kept = {metric.name for metric in recorded(target)}
    return [headline, *(name for name in serving if name in kept - {headline})]


def _judge(
    name: str, by: tuple[str, str], logits: Tensor, labels: Tensor, target: Target, metric: str
) -> _Judged:
    method, context = by
    where = f"logits of {method} on {name!r} in context {context!r}"
    wide = logits.detach().cpu().double()
    outputs = {target.outputs} | ({1, 2} if target == Classes(2) else set())  # one logit for two
    if wide.ndim != 2 or len(wide) != len(labels) or wide.shape[1] not in outputs:
        shape = f"({len(labels)}, {target.outputs})"
        raise ValueError(f"{where} must have shape {shape}, got {tuple(logits.shape)}")
    bad = int((~wide.isfinite().all(dim=1)).sum())
    if bad:
        raise UserError(
            f"{where} are not finite in {bad} of {len(labels)} rows, so training diverged and "
            "there is nothing to report; train again with a smaller learning rate"
        )
    names = shown_metrics(target, metric)
    metrics = {name: METRICS[name].weighted(wide, labels, target) for name in names}
    return _Judged(method, context, wide, metrics)


def _checked_labels(name: str, labels: Tensor, target: Target) -> Tensor:
    if len(labels) == 0:
        raise UserError(f"the test set {name!r} has no rows, so there is nothing to compare on")
    labels = labels.detach().cpu()
    try:
        target.check(labels, len(labels))
    except ValueError as error:
        raise UserError(
            f"labels of the test set {name!r} cannot be scored: {str(error).partition(';')[0]}; "
            "leave rows without a known label out"
        ) from error
    return labels


def _comparison(
    plain: _Judged,
    other: _Judged,
    labels: Tensor,
    differences: Mapping[str, Interval],
    target: Target,
) -> Comparison:
    about: dict[str, Any] = {
        "method": other.method,
        "context": other.context,
        "differences": differences,
    }
    if not isinstance(target, Classes | SoftClasses):
        return Comparison(**about)
    plain_right, other_right = (right_rows(one.logits, labels) for one in (plain, other))
    only_plain = int((plain_right & ~other_right).sum())
    only_other = int((other_right & ~plain_right).sum())
    return Comparison(
        **about,
        only_plain=only_plain,
        only_other=only_other,
        p_value=mcnemar(only_plain, only_other),
    )


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
