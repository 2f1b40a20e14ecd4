"""Does a model use its memory? Questions, each with its measure, and what they say together."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hma.checks import expect_shape, expect_tensor
from hma.io.json_files import finite_or_none, none_to_nan, validate
from hma.memory.memories import Memories
from hma.memory.rows import split_batch
from hma.metrics import METRICS, Metric, metric_for, recorded
from hma.metrics.resampling import bootstrap, percentile_interval
from hma.model import Context
from hma.targets import Target

if TYPE_CHECKING:
    from hma.model import MemoryModel

AUDIT = "audit"
"""Name of the measure in records: test split -> :meth:`Audit.to_json`."""
PERMUTED = "labels permuted"
"""Every stored row has the label of another."""
EMPTIED = "rows emptied"
"""No stored row is there."""
WITHOUT_SLOTS = "slots removed"
"""No learned row is there."""
ALONE = "neighbours removed"
"""No row sees another of its batch."""
SHUFFLED = "rows shuffled"
"""Rows share a batch with others than those beside which they were given."""
TOGETHER = "neighbours added"
"""Asked alone before, rows see those beside which they were given."""
TOGETHER_SHUFFLED = "shuffled neighbours added"
"""Asked alone before, rows see others of those that were given."""


NUMBERS = dict[str, float | None]
SHAPE = {
    "rows": int,
    "stored": int,
    "slots": int,
    "context": str,
    "repeats": int,
    "scores": NUMBERS,
    "changes": dict[str, dict[str, NUMBERS]],
}
"""What an audit is in JSON."""


@dataclass(frozen=True)
class Change:
    """A score of the model with other memories, against the one as it is.

    Args:
        score: What it is then.
        change: By how much it is more.
        low, high: Ends of the 95 % interval of the change; None where none was made.
    """

    score: float
    change: float
    low: float | None = None
    high: float | None = None

    @property
    def certain(self) -> bool:
        """Tell whether the interval is there and leaves 0 out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def none(self) -> bool:
        """Tell whether there is no change at all, however rows are drawn."""
        return self.change == 0 and not self.low and not self.high


Changes = Mapping[str, Change]
"""A change for each metric, the main one first."""


@dataclass(frozen=True)
class Audit:
    """Whether the memories of a model are read, by what their absence changes.

    Args:
        rows: Rows that were asked.
        stored: Rows in the real memory.
        slots: Learned rows.
        context: Inference context of the score as it is.
        repeats: Permutations, and orders of the rows, that are averaged.
        scores: Each metric as it is, the main one first.
        changes: What was done to the memories, and what that did to each metric; what a model
            does not have is not there.
    """

    rows: int
    stored: int
    slots: int
    context: str
    repeats: int
    scores: Mapping[str, float]
    changes: Mapping[str, Changes]

    @property
    def read(self) -> bool | None:
        """Tell whether permuted labels change the main score, or make another one worse.

        None where that cannot be told.
        """
        permuted = self.changes.get(PERMUTED)
        if permuted is None:
            return None if self.stored else False
        if _find_shown(permuted) is not None:
            return True
        known = all(change.none or change.low is not None for change in permuted.values())
        return False if known else None

    @property
    def verdict(self) -> str:
        """Return in one line whether the model uses its memory."""
        permuted = self.changes.get(PERMUTED)
        if permuted is None and not self.stored:
            return "not used: no row is stored"
        if permuted is None:
            return "cannot be told: all stored rows have the same label"
        main = next(iter(permuted))
        if self.read is None:
            return f"permuted labels {_costs(main, permuted[main])}; no interval was made"
        if not self.read:
            return f"not used: {self._unmoved(permuted)}{self._constant()}"
        name = _find_shown(permuted) or main
        harm = ", to its harm" if _cost(name, permuted[name])[0] < 0 else ""
        unseen = "" if name == main else f", though {METRICS[main].title} does not show it"
        return f"used{harm}{unseen}: permuted labels {_costs(name, permuted[name])}"

    def _unmoved(self, permuted: Changes) -> str:
        if all(change.none for change in permuted.values()):
            return "permuting the labels of the rows changes nothing"
        main = next(iter(permuted))
        return (
            f"permuted labels {_costs(main, permuted[main])}, which {self.rows} rows cannot tell "
            "from nothing"
        )

    def _constant(self) -> str:
        """Say of a memory whose labels do not matter that it is needed all the same."""
        emptied = self.changes.get(EMPTIED, {})
        for name, change in emptied.items():
            if change.certain and _cost(name, change)[0] > 0:
                return f"; emptied it {_costs(name, change)}, so it acts as a constant"
        return ""

    def __str__(self) -> str:
        """Return a small table, a line for each change, and the verdict."""
        metrics = [METRICS[name] for name in self.scores]
        lines = [["", *(cell for metric in metrics for cell in (metric.title, "change"))]]
        lines.append(["as it is"])
        for metric in metrics:
            lines[-1] += [score_text(metric, self.scores[metric.name]), ""]
        for done, changes in self.changes.items():
            lines.append([done])
            for metric in metrics:
                found = changes[metric.name]
                lines[-1] += [score_text(metric, found.score), change_text(metric, found)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        about = f"{self.rows} rows asked in context {self.context!r}; {self.stored} rows stored"
        about += f", {self.slots} slots" if self.slots else ""
        return "\n".join([*table, about, self.verdict])

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not defined is None."""
        plain: dict[str, Any] = finite_or_none(asdict(self))
        return plain | {"read": self.read, "verdict": self.verdict}

    @classmethod
    def from_json(cls, values: Any) -> "Audit":
        """Return the audit that :meth:`to_json` gave, or raise a ``ValueError``."""
        held = validate(values, SHAPE)
        if strange := [name for name in held["scores"] if name not in METRICS]:
            raise ValueError(f"scores has a metric that is not known: {strange[0]!r}")
        changes = {
            done: {name: _change(found.get(name)) for name in held["scores"]}
            for done, found in held["changes"].items()
        }
        fields = {name: held[name] for name in ("rows", "stored", "slots", "context", "repeats")}
        return cls(**fields, scores=none_to_nan(held["scores"]), changes=changes)


def _change(values: Any) -> Change:
    held = validate(values, dict.fromkeys(("score", "change", "low", "high"), float | None))
    score, change = none_to_nan(held["score"]), none_to_nan(held["change"])
    return Change(score, change, held["low"], held["high"])


def _find_shown(permuted: Changes) -> str | None:
    """Return the first metric that shows that labels are read.

    A score beside the main one must get worse: one that gets better by noise in the labels shows
    that the model is too sure, not that it reads.
    """
    for place, (name, change) in enumerate(permuted.items()):
        if change.certain and (place == 0 or _cost(name, change)[0] > 0):
            return name
    return None


# ------------------------------------------------------------------------------------- numbers


def _cost(name: str, change: Change) -> tuple[float, float | None, float | None]:
    """Return by how much a score got worse, and the ends of that."""
    if not METRICS[name].larger_is_better:
        return change.change, change.low, change.high
    low, high = (None if end is None else -end for end in (change.high, change.low))
    return -change.change, low, high


def _costs(name: str, change: Change) -> str:
    """Return a change as what it costs, or gains where it makes the score better."""
    metric = METRICS[name]
    cost, low, high = _cost(name, change)
    verb = "cost"
    if cost < 0:
        verb, cost = "gain", -cost
        low, high = (None if end is None else -end for end in (high, low))
    unit = "points" if metric.scale == 100 else f"in {metric.title}"
    unit += "" if name == "accuracy" or metric.scale != 100 else f" of {metric.title}"
    between = "" if low is None else f" ({score_text(metric, low)} to {score_text(metric, high)})"
    return f"{verb} {score_text(metric, cost)} {unit}{between}"


def change_text(metric: Metric, change: Change) -> str:
    """Return a change with its sign and its interval, in points or in the unit of the metric."""
    text = score_text(metric, change.change, "+")
    if change.low is None:
        return text
    low, high = (score_text(metric, end, "+") for end in (change.low, change.high))
    return f"{text} ({low} to {high})"


def score_text(metric: Metric, value: float | None, sign: str = "") -> str:
    """Return a score, in percent where the metric is a share."""
    if value is None:
        return "?"
    digits = 1 if metric.scale == 100 else metric.digits
    text = f"{metric.scale * value:{sign}.{digits}f}"
    return text.lstrip("+-") if value == value and float(text) == 0 else text


# ---------------------------------------------------------------------------------------- questions


AT_ONCE = 256
"""Rows that are asked at a time where none sees another."""
MOST_TOGETHER = 1024
"""Rows of a batch that a model which answers alone is asked to look at together."""
Part = tuple[Tensor, Tensor | None, Tensor | None]
"""Features ``(B, F)`` of a batch, its labels, and its sample ids if they are known."""


@dataclass(frozen=True)
class Question:
    """A context, what the memories are, and in which order rows are put into batches."""

    context: Context
    memories: Memories
    order: Tensor | None = None


def questions(
    model: "MemoryModel", context: Context, rows: "Rows", repeats: int, seed: int
) -> list[tuple[str, Callable[[], Question]]]:
    """Return every question beside the score as it is; memories are made when it is asked."""
    generator = torch.Generator().manual_seed(seed)
    stored, slots = sizes_of(model)
    asked: list[tuple[str, Callable[[], Question]]] = []

    def ask(name: str, where: Context, *, order: Tensor | None = None, **other: Any) -> None:
        asked.append(
            (name, lambda: Question(where, model.memories_with(context=where, **other), order))
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
                ask(PERMUTED, context, labels_of=labels_of)
        every = torch.ones(queue.size, dtype=torch.bool, device=places.device)
        ask(EMPTIED, context, hidden_rows=every)
    if slots:
        every = torch.ones(slots, dtype=torch.bool, device=model.device)
        ask(WITHOUT_SLOTS, context, hidden_slots=every)
    orders = [
        torch.randperm(len(rows.labels), generator=generator)
        for _ in range(repeats if len(rows.sizes) > 1 else 0)  # of one batch there is one order
    ]
    if context == "batch":
        ask(ALONE, "alone")
        for order in orders:
            ask(SHUFFLED, "batch", order=order)
    elif context == "alone" and model.sees_batch and max(rows.sizes) <= MOST_TOGETHER:
        ask(TOGETHER, "batch")
        for order in orders:
            ask(TOGETHER_SHUFFLED, "batch", order=order)
    return asked


def sizes_of(model: "MemoryModel") -> tuple[int, int]:
    """Return the number of stored rows and of slots."""
    stored = 0 if model.real is None else len(model.real.queue.order())
    learned = None if model.synthetic is None else model.synthetic.slots
    return stored, 0 if learned is None else len(learned)


@dataclass(frozen=True)
class Rows:
    """Everything that is asked, and how many rows came together.

    Shape:
        - ``features`` ``(N, F)``, ``labels`` ``(N, ...)``, ``ids`` ``(N,)``.
    """

    features: Tensor
    labels: Tensor
    ids: Tensor | None
    sizes: list[int]

    @classmethod
    def of(cls, model: "MemoryModel", parts: Iterable[Part]) -> "Rows":
        """Return all batches in one, or say what does not fit."""
        features, labels, ids = [], [], []
        for made, y, names in parts:
            made = expect_tensor("features", made)
            expect_shape("features", made, None, model.feature_dim)
            if not isinstance(y, Tensor):
                raise TypeError(f"y must be a tensor of true labels, got {type(y).__name__}")
            model.target.check(y, len(made))
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

    def logits(self, model: "MemoryModel", question: Question) -> Tensor:
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
                memories = memories.hide(rows=own)
            trace = model.trace(features, context=question.context, memories=memories)
            answers.append(trace.logits.float().cpu())
        logits = torch.empty(len(order), answers[0].shape[1])
        logits[order] = torch.cat(answers)
        return logits


# -------------------------------------------------------------------------------------- asking them


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
            :meth:`hma.VotingMemory.learn_memory` takes them. Unused if ``features`` are given.
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
        [(features, y, ids)] if features is not None else _encode(model, given),
        context=context,
        metrics=metrics,
        repeats=repeats,
        resamples=resamples,
        seed=seed,
    )


def _encode(model: "MemoryModel", batches: Iterable[Sequence[Any]]) -> Iterator["Part"]:
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
        names = list(metrics) or metrics_to_audit(model.target)
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
    scores, changes = _compare(target, scored, plain, found, rows.labels, resamples, seed)
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


def metrics_to_audit(target: Target, main: str = "") -> list[str]:
    """Return the main metric, the target's own if none is named, and those beside it.

    Example:
        >>> from hma.targets import Classes
        >>> metrics_to_audit(Classes(3)), metrics_to_audit(Classes(3), "matthews")
        (['accuracy', 'nll'], ['matthews', 'nll'])
    """
    first = metric_for(target, main).name
    return [first, *(m.name for m in recorded(target) if m.name in BESIDE - {first})]


def _compare(
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
