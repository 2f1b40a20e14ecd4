"""Is the memory read? The score of a model as it is, and with memories that are not its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hma.memory.encoded_rows import split_batch
from hma.metrics import Metric, metric_for, recorded
from hma.metrics.resampling import bootstrap, percentile_interval
from hma.model import Context
from hma.questions.audit_questions import Part, Question, Rows, questions, sizes_of
from hma.questions.audited import Audit, Change
from hma.targets import Target

if TYPE_CHECKING:
    from hma.model import MemoryModel

BESIDE = {"nll", "r2"}
"""Metrics that stand beside the main one."""


@torch.no_grad()
def audit(
    model: "MemoryModel",
    x: Any = None,
    y: Tensor | None = None,
    *,
    features: Tensor | None = None,
    ids: Tensor | None = None,
    context: Context | None = None,
    metrics: Iterable[str] = (),
    repeats: int = 5,
    resamples: int = 1000,
    seed: int = 0,
) -> Audit:
    """Ask a model with its memories and with others, and say what the difference is.

    The labels of stored rows are permuted among them, the rows are emptied, the slots removed. Of
    a model whose rows can see their batch, the neighbours are removed, or in context 'alone' added,
    and rows put beside others than those with which they were given: in a file that is sorted,
    neighbours are alike. A memory that is read loses when its labels are permuted. What a model
    does not have is left out.

    The backbone runs once. Intervals are those of the paired bootstrap: rows are drawn again, the
    same for both scores, and the middle 95 % of the differences are taken, so they say how far
    other rows might differ, not other training runs. Nothing in the model changes.

    Args:
        model: The model; evaluated in eval mode, its own mode is restored.
        x: A batch, as the backbone takes it; without ``y``, batches as
            :meth:`hma.HMA.learn_memory` takes them. Unused if ``features`` are given.
        y: True labels of the batch, as the model's target has them.
        features: What the backbone made of the batch, ``(B, F)``.
        ids: Sample ids ``(B,)`` of rows that may be stored: none reads its own copy then.
        context: Inference context; the model's own if not given.
        metrics: Which scores, the main one first; the target's main one and the log loss if
            none is named.
        repeats: Permutations, and orders, that are averaged.
        resamples: Draws of the bootstrap; 0 makes no intervals.
        seed: Decides permutations, orders and draws.

    Example:
        >>> from hma import HMA, HMAConfig
        >>> model = HMA(torch.nn.Identity(), 2, HMAConfig(slots_per_class=1), feature_dim=8)
        >>> x, y = torch.randn(20, 8), torch.arange(20) % 2
        >>> model.eval().remember(x, y)
        >>> list(audit(model, x, y).changes)
        ['labels permuted', 'rows emptied', 'slots removed', 'neighbours removed']
    """
    given: Iterable[Sequence[Any]] = [(x, y, ids)]
    if y is None:
        if features is not None or ids is not None:
            raise ValueError("y must be given beside features or ids: the true labels of the rows")
        given = x
    return audit_features(
        model,
        [(features, y, ids)] if features is not None else _encoded(model, given),
        context=context,
        metrics=metrics,
        repeats=repeats,
        resamples=resamples,
        seed=seed,
    )


def _encoded(model: "MemoryModel", batches: Iterable[Sequence[Any]]) -> Iterator["Part"]:
    for batch in batches:
        x, y, ids = split_batch(batch, "x")
        yield model.backbone(x), y, ids


@torch.no_grad()
def audit_features(
    model: "MemoryModel",
    parts: Iterable[Part],
    *,
    context: Context | None = None,
    metrics: Iterable[str] = (),
    repeats: int = 5,
    resamples: int = 1000,
    seed: int = 0,
    tick: Callable[[int, int], None] | None = None,
) -> Audit:
    """Do what :func:`audit` does with features that the backbone has made, batch by batch.

    Args:
        model: The model; evaluated in eval mode, its own mode is restored.
        parts: Features, labels and sample ids of each batch; asked for in eval mode too.
        context, metrics, repeats, resamples, seed: As :func:`audit` takes them.
        tick: Told how many questions are answered, and of how many.
    """
    for name, value, least in (("repeats", repeats, 1), ("resamples", resamples, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    context = model.context if context is None else context
    if context == "batch" and not model.sees_batch:
        context = "alone"
    device = model.device
    ours = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with model.reading(), ours:  # random numbers then go on as if nothing had been drawn
        names = list(metrics) or audited_metrics(model.target)
        scored = [metric_for(model.target, name) for name in names]
        rows = Rows.of(model, parts)
        asked = questions(model, context, rows, repeats, seed)
        plain = rows.logits(model, Question(context, model.memories_with(context=context)))
        found: dict[str, list[Tensor]] = {}
        for done, (name, question) in enumerate(asked):
            if tick is not None:
                tick(done + 1, len(asked) + 1)
            found.setdefault(name, []).append(rows.logits(model, question()))
        stored, slots = sizes_of(model)
        target = model.target
    scores, changes = _compared(target, scored, plain, found, rows.labels, resamples, seed)
    return Audit(
        rows=len(rows.labels),
        stored=stored,
        slots=slots,
        context=context,
        repeats=repeats,
        scores=scores,
        changes=changes,
    )


# ------------------------------------------------------------------------- what is compared


def audited_metrics(target: Target, main: str = "") -> list[str]:
    """Return the main metric, the target's own if none is named, and those beside it.

    Example:
        >>> from hma.targets import Classes
        >>> audited_metrics(Classes(3)), audited_metrics(Classes(3), "matthews")
        (['accuracy', 'nll'], ['matthews', 'nll'])
    """
    first = metric_for(target, main).name
    return [first, *(m.name for m in recorded(target) if m.name in BESIDE - {first})]


def _compared(
    target: Target,
    metrics: Sequence[Metric],
    plain: Tensor,
    found: dict[str, list[Tensor]],
    labels: Tensor,
    resamples: int,
    seed: int,
) -> tuple[dict[str, float], dict[str, dict[str, Change]]]:
    """Return each score as it is, and its changes by question."""
    scores: dict[str, float] = {}
    changes: dict[str, dict[str, Change]] = {name: {} for name in found}
    answers = [plain, *(logits for several in found.values() for logits in several)]
    for metric in metrics:
        scores[metric.name] = before = metric.score(plain, labels, target)
        drawn = np.empty((len(answers), 0))
        if resamples:
            each = [metric.weighted(logits.double(), labels, target) for logits in answers]
            drawn = bootstrap(each, rows=len(labels), resamples=resamples, seed=seed)
        last = 1
        for name, several in found.items():
            first, last = last, last + len(several)
            # differences first: where nothing changes their mean is 0 and not nearly so
            change = fmean(metric.score(one, labels, target) - before for one in several)
            ends: tuple[float | None, float | None] = None, None
            if resamples:
                interval = percentile_interval(change, (drawn[first:last] - drawn[0]).mean(axis=0))
                ends = interval.low, interval.high
            changes[name][metric.name] = Change(before + change, change, *ends)
    return scores, changes
