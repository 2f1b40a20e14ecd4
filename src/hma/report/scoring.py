"""From logits and labels to scores, intervals and tests: what the headline is made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hma.errors import UserError
from hma.metrics import METRICS, OfWeights, recorded
from hma.metrics.resampling import Interval, bootstrap, percentile_interval
from hma.report.run_report import (
    MEMORY,
    PLAIN,
    SERIES,
    ClassResult,
    Comparison,
    LabelsResult,
    NumberResult,
    Result,
    Trial,
)
from hma.report.statistics import Draws, calibration, mcnemar, wilson
from hma.targets import Classes, Target, YesNo

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
        target: What a label is where that differs from seed to seed, as the scale of a number.
        places: Which rows of the data these are.
    """

    labels: Tensor
    memory: Mapping[str, Tensor]
    plain: Mapping[str, Tensor]
    others: Mapping[str, Tensor] = field(default_factory=dict)
    features: Tensor | None = None
    orders: Mapping[str, Tensor] = field(default_factory=dict)
    target: Target | None = None
    places: Sequence[int] = ()

    @property
    def said(self) -> dict[tuple[str, str], Tensor]:
        """Logits by method and context."""
        others = {name: {ALONE: logits} for name, logits in self.others.items()}
        each = {PLAIN: self.plain, MEMORY: self.memory, **others}
        return {(name, c): logits for name, held in each.items() for c, logits in held.items()}

    @property
    def own(self) -> dict[str, Tensor]:
        """Logits by method, each in its own context: the first."""
        return {method: logits for (method, _), logits in reversed(self.said.items())}


class _Judged(NamedTuple):
    logits: Tensor
    metrics: dict[str, OfWeights]


def compare(
    name: str,
    seeds: Sequence[Answers],
    metrics: Sequence[str],
    *,
    target: Target,
    resamples: int,
    seed: int = 0,
    to_simple: bool = False,
) -> Trial:
    """Score all methods on a test set, and the others against the plain backbone.

    Over several seeds scores are means, paired by seed and by row, of the methods that all seeds
    have.

    Args:
        name: Name of the test set.
        seeds: Labels and logits with each seed; of a run there is one.
        metrics: What is computed; the verdict is about the first.
        target: What a label is.
        resamples: Draws of the bootstrap; the same seeds and rows for every number.
        seed: Decides the draws.
        to_simple: Compare with the simple method that has the best mean as well.
    """
    judged = [_judge_all(name, one, target, metrics) for one in seeds]
    shared = [key for key in judged[0] if all(key in own for own in judged)]
    first, rows = seeds[0], [len(one.labels) for one in seeds]
    same_rows = all(
        one.places == first.places and torch.equal(one.labels, first.labels) for one in seeds
    )
    asked = [[own[key].metrics for key in shared] for own in judged]
    drawn = Draws.of(asked, rows=rows, resamples=resamples, seed=seed, same_rows=same_rows)
    results: list[Result] = []
    for place, (method, context) in enumerate(shared):
        scores = drawn.scored(place)
        make: MakeResult = Result
        if len(seeds) == 1:
            scores = _scores(scores, rows[0])
            draws = {"resamples": resamples, "seed": seed}
            make = result_of(target, judged[0][method, context].logits, first.labels.cpu(), draws)
        by_seed = {m: tuple(drawn.scores[place, i].tolist()) for i, m in enumerate(metrics)}
        results.append(make(method=method, context=context, scores=scores, by_seed=by_seed))
    trial = Trial(
        name=name,
        rows=rows[0],
        results=tuple(results),
        comparisons=(),
        simple={r.method: _means(r) for r in results if to_simple and r.method not in SERIES},
        seed_rows=tuple(rows),
        same_rows=same_rows,
    )
    best = best_simple(metrics[0], trial.simple)
    bases = [method for method in (PLAIN, best[0] if best else None) if method is not None]
    methods = [method for method, _ in shared]
    alone = len(seeds) == 1 and target.picks_one
    right = [right_rows(judged[0][key].logits, first.labels.cpu()) for key in shared if alone]
    comparisons = tuple(
        _comparison(shared[i], base, drawn, (i, methods.index(base)), right)
        for base in bases
        if base in methods
        for i, method in enumerate(methods)
        if method != base
    )
    return replace(trial, comparisons=comparisons)


def _means(result: Result) -> dict[str, float]:
    return {metric: found.value for metric, found in result.scores.items()}


def best_simple(metric: str, rows: Mapping[str, Mapping[str, float]]) -> tuple[str, float] | None:
    """Return the simple baseline with the best score; None without any.

    Example:
        >>> best_simple("accuracy", {"kNN": {"accuracy": 0.8}, "PARAM": {"accuracy": 0.9}})
        ('PARAM', 0.9)
    """
    scored = [(row, scores[metric]) for row, scores in rows.items() if metric in scores]
    defined = [(row, value) for row, value in scored if not math.isnan(value)]
    return max(defined, key=lambda row: ahead(metric, row[1]), default=None)


def ahead(metric: str, value: float) -> float:
    """Return a score, or a difference, so that more is better."""
    return value if METRICS[metric].larger_is_better else -value


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
    if target.picks_one:
        kept = {metric.name for metric in recorded(target) if metric.followed}
        kept |= {name for name in serving if METRICS[name].share}
        kept |= {"auroc"} if target.outputs <= 2 else set()
    else:
        kept = {metric.name for metric in recorded(target)}
    return [headline, *(name for name in serving if name in kept - {headline})]


def _judge_all(
    name: str, answers: Answers, target: Target, metrics: Sequence[str]
) -> dict[tuple[str, str], _Judged]:
    if not answers.memory:
        raise ValueError(f"memory must hold the logits of the memory on {name!r}, got none")
    target = answers.target or target
    labels = _checked_labels(name, answers.labels, target)
    found = {}
    for (method, context), logits in answers.said.items():
        wide = _checked_logits(
            f"logits of {method} on {name!r} in context {context!r}", logits, len(labels), target
        )
        formulas = {metric: METRICS[metric].weighted(wide, labels, target) for metric in metrics}
        found[method, context] = _Judged(wide, formulas)
    return found


def _checked_logits(where: str, logits: Tensor, rows: int, target: Target) -> Tensor:
    wide = logits.detach().cpu().double()
    outputs = {target.outputs} | ({1, 2} if target == Classes(2) else set())  # one logit for two
    if wide.ndim != 2 or len(wide) != rows or wide.shape[1] not in outputs:
        shape = f"({rows}, {target.outputs})"
        raise ValueError(f"{where} must have shape {shape}, got {tuple(logits.shape)}")
    bad = int((~wide.isfinite().all(dim=1)).sum())
    if bad:
        raise UserError(
            f"{where} are not finite in {bad} of {rows} rows, so training diverged and "
            "there is nothing to report; train again with a smaller learning rate"
        )
    return wide


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
    key: tuple[str, str],
    base: str,
    drawn: Draws,
    places: tuple[int, int],
    right: Sequence[Tensor],
) -> Comparison:
    """Compare a method with a base; by rows too where it is known which each has ``right``."""
    found = Comparison(
        method=key[0],
        context=key[1],
        base=base,
        differences=drawn.difference(*places),
        p_over_seeds=drawn.tested(*places)[drawn.metrics[0]],
    )
    if not right:
        return found
    other, plain = (right[place] for place in places)
    only_plain, only_other = int((plain & ~other).sum()), int((other & ~plain).sum())
    p = mcnemar(only_plain, only_other)
    return replace(found, only_plain=only_plain, only_other=only_other, p_value=p)


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
    if not target.gives_probabilities:
        said, true = target.expected(logits), labels.reshape(-1).double()
        return partial(NumberResult, said=said.numpy(), true=true.numpy())
    if target.picks_one:
        return _class_result(logits, labels)
    return _labels_result(target, logits, labels, draws)


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
    target: Target, logits: Tensor, labels: Tensor, draws: Mapping[str, int]
) -> MakeResult:
    y = target.check(labels, len(labels))  # (N, T)
    area, one = METRICS["auroc"].weighted, YesNo(1)
    each = [area(logits[:, t : t + 1], y[:, t : t + 1], one) for t in range(target.outputs)]
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
