"""From logits and labels to scores, intervals and tests: what the headline is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from hma.errors import UserError
from hma.metrics import METRICS, OfWeights, recorded
from hma.metrics.resampling import Interval, bootstrap, percentile_interval
from hma.report.run.results import result_of, right_rows
from hma.report.run.trial import MEMORY, PLAIN, Comparison, Trial
from hma.report.statistics import Floats, mcnemar, wilson
from hma.targets import Classes, SoftClasses, Target

RESAMPLES = 2000
ALONE = "alone"
"""The context of candidates that have no other."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What was said of the rows of one test set.

    Args:
        labels: True labels, class ids ``(N,)`` or as the target has them.
        memory: Logits of HMA ``(N, outputs)`` in each inference context, the model's own context
            first.
        plain: The same of the plain backbone; empty where none was trained.
        others: Logits of other candidates, and of the mixture, by their names.
        features: Features of the rows as HMA's backbone makes them, ``(N, F)``; None leaves
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

    def scores(self, rows: int, replicates: Floats) -> dict[str, Interval]:
        """Return each metric between the percentiles of its replicates."""
        once = np.ones((rows, 1))
        found = {}
        for (name, metric), drawn in zip(self.metrics.items(), replicates, strict=True):
            value = float(metric(once)[0])
            if METRICS[name].interval == "wilson":  # better than the bootstrap at 100%
                found[name] = wilson(round(value * rows), rows)
            else:
                found[name] = percentile_interval(value, drawn)
        return found


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
        raise ValueError(f"memory must hold the logits of HMA on {name!r}, got none")
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
    asked = [m for one in judged for m in one.metrics.values()]
    drawn = bootstrap(asked, rows=len(labels), resamples=resamples, seed=seed)
    count = len(judged[0].metrics)
    replicates = [drawn[i * count : (i + 1) * count] for i in range(len(judged))]
    plain = [i for i, one in enumerate(judged) if one.method == PLAIN][:1]
    draws = {"resamples": resamples, "seed": seed}
    return Trial(
        name=name,
        rows=len(labels),
        results=tuple(
            result_of(target, one.logits, labels, draws)(
                method=one.method, context=one.context, scores=one.scores(len(labels), own)
            )
            for one, own in zip(judged, replicates, strict=True)
        ),
        comparisons=tuple(
            _comparison(judged[i], one, labels, own - replicates[i], target)
            for i in plain
            for one, own in zip(judged, replicates, strict=True)
            if one.method != PLAIN
        ),
    )


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
    plain: _Judged, other: _Judged, labels: Tensor, replicates: Floats, target: Target
) -> Comparison:
    once = np.ones((len(labels), 1))
    differences: dict[str, Interval] = {}
    for (name, m), drawn in zip(other.metrics.items(), replicates, strict=True):
        value = float(m(once)[0] - plain.metrics[name](once)[0])
        differences[name] = percentile_interval(value, drawn)
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
