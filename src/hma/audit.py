"""Is the memory read? The score of a model as it is, and with memories that are not its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hma.audited import ALONE, EMPTIED, PERMUTED, SHUFFLED, WITHOUT_SLOTS, Audit, Change
from hma.checks import expect_shape, expect_tensor
from hma.config import Context
from hma.memory import Memories
from hma.metrics import Metric, metric_for, recorded
from hma.metrics.resampling import bootstrap, percentile_interval
from hma.momentum import evaluating

if TYPE_CHECKING:
    from hma.model import HMA

AT_ONCE = 256
"""Rows that are asked at a time where none sees another."""
BESIDE = {"nll", "r2"}
"""Metrics that stand beside the main one."""


@torch.no_grad()
def audit(
    model: "HMA",
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

    The labels of stored rows are permuted among them, the rows are emptied, the slots removed; in
    context 'batch' also the neighbours removed, and rows put beside others than those with which
    they were given. A memory that is read loses when its labels are permuted. What a model does
    not have is left out.

    The backbone runs once. Intervals are those of the paired bootstrap: rows are drawn again, the
    same for both scores, and the middle 95 % of the differences are taken, so they say how far
    other rows might differ, not other training runs. Nothing in the model changes.

    Args:
        model: The model; evaluated in eval mode, its own mode is restored.
        x: A batch, as the backbone takes it; without ``y``, batches ``(x, y)`` or
            ``(x, y, ids)``. Unused if ``features`` are given.
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
        ['labels permuted', 'rows emptied', 'slots removed']
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


def _encoded(model: "HMA", batches: Iterable[Sequence[Any]]) -> Iterator["Part"]:
    for batch in batches:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise TypeError(
                "x must be batches (x, y) or (x, y, ids) where y is not given, got a "
                f"{type(batch).__name__} among them; for one batch call audit(model, x, y)"
            )
        yield model.backbone(batch[0]), batch[1], batch[2] if len(batch) == 3 else None


Part = tuple[Tensor, Tensor | None, Tensor | None]
"""Features ``(B, F)`` of a batch, its labels, and its sample ids if they are known."""


@torch.no_grad()
def audit_features(
    model: "HMA",
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
    if context == "batch" and not model.config.sees_batch:
        context = "alone"
    scored = _scored(model, metrics)
    device = model.anchors.device
    ours = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with evaluating(model), ours:  # random numbers then go on as if nothing had been drawn
        rows = _Rows.of(model, parts)
        asked = _questions(model, context, rows, repeats, seed)
        plain = rows.logits(model, _Question(context, model.memories_with(context=context)))
        found: dict[str, list[Tensor]] = {}
        for done, (name, question) in enumerate(asked):
            if tick is not None:
                tick(done + 1, len(asked) + 1)
            found.setdefault(name, []).append(rows.logits(model, question()))
    scores, changes = _compared(model, scored, plain, found, rows.labels, resamples, seed)
    stored, slots = _sizes(model)
    return Audit(
        rows=len(rows.labels),
        stored=stored,
        slots=slots,
        context=context,
        repeats=repeats,
        scores=scores,
        changes=changes,
    )


# --------------------------------------------------------------------------- what is asked


@dataclass(frozen=True)
class _Question:
    """A context, what the memories are, and in which order rows are put into batches."""

    context: Context
    memories: Memories
    order: Tensor | None = None


def _questions(
    model: "HMA", context: Context, rows: "_Rows", repeats: int, seed: int
) -> list[tuple[str, Callable[[], _Question]]]:
    """Return every question beside the score as it is; memories are made when it is asked."""
    generator = torch.Generator().manual_seed(seed)
    stored, slots = _sizes(model)
    asked: list[tuple[str, Callable[[], _Question]]] = []

    def ask(name: str, *, order: Tensor | None = None, **other: Any) -> None:
        where: Context = "alone" if name == ALONE else context
        asked.append(
            (name, lambda: _Question(where, model.memories_with(context=where, **other), order))
        )

    if stored:
        assert model.real is not None
        queue = model.real.queue
        places, labels = queue.order(), queue.rows().labels
        if not bool((labels == labels[:1]).all()):
            for _ in range(repeats):
                labels_of = torch.arange(queue.size, device=places.device)
                drawn = torch.randperm(stored, generator=generator).to(places.device)
                labels_of[places] = places[drawn]
                ask(PERMUTED, labels_of=labels_of)
        ask(EMPTIED, hidden_rows=torch.ones(queue.size, dtype=torch.bool, device=places.device))
    if slots:
        every = torch.ones(slots, dtype=torch.bool, device=model.anchors.device)
        ask(WITHOUT_SLOTS, hidden_slots=every)
    if context == "batch":
        ask(ALONE)
        for _ in range(repeats if len(rows.sizes) > 1 else 0):
            ask(SHUFFLED, order=torch.randperm(len(rows.labels), generator=generator))
    return asked


def _sizes(model: "HMA") -> tuple[int, int]:
    """Return the number of stored rows and of slots."""
    stored = 0 if model.real is None else len(model.real.queue.order())
    learned = None if model.synthetic is None else model.synthetic.slots
    return stored, 0 if learned is None else len(learned)


@dataclass(frozen=True)
class _Rows:
    """Everything that is asked, and how many rows came together.

    Shape:
        - ``features`` ``(N, F)``, ``labels`` ``(N, ...)``, ``ids`` ``(N,)``.
    """

    features: Tensor
    labels: Tensor
    ids: Tensor | None
    sizes: list[int]

    @classmethod
    def of(cls, model: "HMA", parts: Iterable[Part]) -> "_Rows":
        """Return all batches in one, or say what does not fit."""
        features, labels, ids = [], [], []
        for made, y, names in parts:
            made = expect_tensor("features", made)
            expect_shape("features", made, None, model.feature_dim)
            if not isinstance(y, Tensor):
                raise TypeError(f"y must be a tensor of true labels, got {type(y).__name__}")
            model.target.checked(y, len(made))
            features.append(made)
            labels.append(y.cpu())
            if names is not None:
                expect_shape("ids", names, len(made))
                ids.append(names.to(made.device))
        if not sum(map(len, features)):
            raise ValueError("x must hold at least one row, got none")
        if ids and len(ids) < len(features):
            raise ValueError(
                f"ids must be given for every batch or for none, got them for {len(ids)} of "
                f"{len(features)}"
            )
        if ids and model.real is not None and model.real.nearest is not None:
            raise ValueError(
                "ids cannot be used where model.real.nearest chooses the rows; set it to None, or "
                "ask with rows that are not stored"
            )
        names = torch.cat(ids) if ids else None
        return cls(torch.cat(features), torch.cat(labels), names, [len(f) for f in features])

    def logits(self, model: "HMA", question: _Question) -> Tensor:
        """Return the logits of all rows, ``(N, C)``, on the CPU."""
        order = torch.arange(len(self.labels)) if question.order is None else question.order
        together: int | list[int] = self.sizes if question.context == "batch" else AT_ONCE
        answers = []
        for places in torch.split(order, together):
            features = self.features[places]
            memories = question.memories
            if self.ids is not None and model.real is not None:
                names = self.ids[places]
                own = (names[:, None] == model.real.queue.ids) & (names >= 0)[:, None]  # (B, M)
                memories = memories.hiding(rows=own)
            trace = model.trace(features, context=question.context, memories=memories)
            answers.append(trace.logits.float().cpu())
        logits = torch.empty(len(order), answers[0].shape[1])
        logits[order] = torch.cat(answers)
        return logits


# ------------------------------------------------------------------------- what is compared


def _scored(model: "HMA", names: Iterable[str]) -> list[Metric]:
    """Return the metrics, the main one first."""
    named = [metric_for(model.target, name) for name in names]
    if named:
        return named
    known = recorded(model.target)
    return [known[0], *(metric for metric in known[1:] if metric.name in BESIDE)]


def _compared(
    model: "HMA",
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
        scores[metric.name] = before = metric.score(plain, labels, model.target)
        drawn = np.empty((len(answers), 0))
        if resamples:
            each = [metric.weighted(logits.double(), labels, model.target) for logits in answers]
            drawn = bootstrap(each, rows=len(labels), resamples=resamples, seed=seed)
        last = 1
        for name, several in found.items():
            first, last = last, last + len(several)
            # differences first: where nothing changes their mean is 0 and not nearly so
            change = fmean(metric.score(one, labels, model.target) - before for one in several)
            ends: tuple[float | None, float | None] = None, None
            if resamples:
                interval = percentile_interval(change, (drawn[first:last] - drawn[0]).mean(axis=0))
                ends = interval.low, interval.high
            changes[name][metric.name] = Change(before + change, change, *ends)
    return scores, changes
