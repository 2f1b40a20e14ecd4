"""Predictions of a learner, batch by batch, their scores in every context, and an audit."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor

from hma.data import Batch, Split
from hma.errors import UserError, wrong_choice
from hma.memory.distributed import gather_rows, world_size
from hma.methods import Learner
from hma.metrics import scores
from hma.model import Context, MemoryModel, Output
from hma.questions.audit import Audit, Part, audit_features
from hma.targets import Target
from hma.training.order import evaluation_order
from hma.training.progress import Progress, progress_ticker
from hma.training.record import Scores

MOST_KEPT = 1 << 26
"""Values of features that are held while a split is asked in several contexts: 256 MiB."""


def predictions(
    learner: Learner, split: Split, *, batch_size: int, context: str | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield sample ids ``(B,)`` and logits ``(B, C)`` batch by batch, both on the CPU.

    One batch is held at a time, so memory does not grow with the split. The batches are those of
    :func:`evaluate`, so in context 'batch' the ids come shuffled.

    Args:
        learner: What predicts; it is put in eval mode.
        split: Rows to predict.
        batch_size: Rows per batch; where a row sees its batch it decides who sees whom.
        context: Inference context; the learner's first if not given.
    """
    context = learner.contexts[0] if context is None else context
    _use(learner, context)
    learner.module.eval()
    for places in _batches(context, len(split), batch_size):
        batch, output = _predicted(learner, split, places)
        yield batch.ids.cpu(), output.logits.float().cpu()


def evaluate(
    learner: Learner,
    split: Split,
    *,
    batch_size: int,
    contexts: Iterable[str] | None = None,
    metrics: Iterable[str] = (),
    target: Target | None = None,
    tick: Callable[[], None] | None = None,
) -> Scores:
    """Return the scores of ``learner`` on ``split`` in each context; it is left in its first one.

    Who shares a batch is up to the context, see :func:`hma.training.order.evaluation_order`.
    Under ``torch.distributed`` the processes share the batches, and every process must call.

    Args:
        learner: What predicts; it is put in eval mode.
        split: Labelled rows.
        batch_size: Rows per batch; where a row sees its batch it decides who sees whom.
        contexts: Inference contexts; all of the learner's if not given.
        metrics: Which scores; all that records hold if none is named.
        target: What a label is; class ids if not given.
        tick: Called after every batch.
    """
    if len(split) == 0:
        raise UserError("split must have at least one row to score, got none")
    said = logits_by_context(learner, split, batch_size=batch_size, contexts=contexts, tick=tick)
    return {
        context: scores(logits, split.labels, metrics, target=target)
        for context, logits in said.items()
    }


def logits_by_context(
    learner: Learner,
    split: Split,
    *,
    batch_size: int,
    contexts: Iterable[str] | None = None,
    tick: Callable[[], None] | None = None,
) -> dict[str, Tensor]:
    """Return the logits of all rows, ``(N, C)``, in each context; it is left in its first one.

    Where contexts differ in what is done with features only, and these are not too many to hold,
    the backbone runs once.

    Args:
        learner: What predicts; it is put in eval mode.
        split: Rows, at least one.
        batch_size: Rows per batch; where a row sees its batch it decides who sees whom.
        contexts: Inference contexts; all of the learner's if not given.
        tick: Called after every batch.
    """
    asked = tuple(learner.contexts if contexts is None else contexts)
    keep = len(asked) > 1 and learner.contexts_share_features
    said = {}
    for context in asked:
        logits, features = _answers(learner, split, batch_size, context, keep, tick or _nothing)
        said[context] = logits
        if features is not None:
            split, keep = Encoded(split, features), False
    learner.use(learner.contexts[0])
    return said


class Encoded:
    """A split whose features are known.

    Args:
        split: Its rows.
        features: What the backbone makes of them, ``(N, F)``.
    """

    def __init__(self, split: Split, features: Tensor) -> None:
        self.labels, self.features = split.labels, features

    def __len__(self) -> int:
        return len(self.features)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return rows by place, as features."""
        features = self.features[places.to(self.features.device)]
        return Batch(None, self.labels[places], places, features=features)


def all_logits(
    learner: Learner,
    split: Split,
    *,
    batch_size: int,
    context: str | None = None,
    tick: Callable[[], None] | None = None,
) -> Tensor:
    """Return the logits of all rows as in the split, ``(N, C)``, each batch made by one process.

    Args:
        learner: What predicts; it is put in eval mode and in the context.
        split: Rows, at least one.
        batch_size: Rows per batch; where a row sees its batch it decides who sees whom.
        context: Inference context; the learner's first if not given.
        tick: Called after every batch.
    """
    context = learner.contexts[0] if context is None else context
    return _answers(learner, split, batch_size, context, False, tick or _nothing)[0]


def _answers(
    learner: Learner,
    split: Split,
    batch_size: int,
    context: str,
    keep: bool,
    tick: Callable[[], None],
) -> tuple[Tensor, Tensor | None]:
    """Return the logits of all rows and, if they are to be kept and can be, their features."""
    _use(learner, context)
    learner.module.eval()
    batches = _batches(context, len(split), batch_size)
    processes = world_size()
    rank = dist.get_rank() if processes > 1 else 0
    logits, features = [], []
    for first in range(0, len(batches), processes):
        turn = first + rank
        own = turn < len(batches)  # with nothing left to do a process still takes part
        _, output = _predicted(learner, split, batches[turn if own else 0])
        kept = slice(None) if own else slice(0)
        logits.append(output.logits.float()[kept])
        keep = keep and len(split) * output.features.shape[1] <= MOST_KEPT
        if keep:
            features.append(output.features[kept])
        tick()
    order = torch.cat([places for r in range(processes) for places in batches[r::processes]])
    return _in_order(logits, order).cpu(), _in_order(features, order) if keep else None


def _in_order(parts: list[Tensor], order: Tensor) -> Tensor:
    """Return what all processes made, rank by rank, with every row at its place."""
    gathered = gather_rows(torch.cat(parts))  # (N, ...)
    placed = torch.empty_like(gathered)
    placed[order.to(gathered.device)] = gathered
    return placed


@torch.no_grad()
def _predicted(learner: Learner, split: Split, places: Tensor) -> tuple[Batch, Output]:
    batch = split.batch(places)
    held = next(chain(learner.module.parameters(), learner.module.buffers()), None)
    if held is not None and held.device.type != "cpu":
        batch = batch.to(held.device)
    return batch, learner.answer(batch)


def _batches(context: str, rows: int, batch_size: int) -> tuple[Tensor, ...]:
    return torch.split(evaluation_order(context, rows), batch_size) if rows else ()


def _use(learner: Learner, context: str) -> None:
    if context not in learner.contexts:
        raise UserError(wrong_choice("context", context, learner.contexts))
    learner.use(context)


def _nothing() -> None:
    pass


def audit_split(
    model: MemoryModel,
    split: Split,
    *,
    batch_size: int = 256,
    context: Context | None = None,
    metrics: Iterable[str] = (),
    repeats: int = 5,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Return :func:`hma.audit` of the rows of a split, in the order that they have there.

    Args:
        model: The model.
        split: Labelled rows, or features of them.
        batch_size: Rows per batch; where rows see each other it decides who sees whom.
        context, metrics, repeats, resamples, seed: As :func:`hma.audit` takes them.
        progress: Shows how far it is.
    """
    parts: list[Part] = []
    batches = torch.split(torch.arange(len(split)), batch_size) if len(split) else ()
    with model.reading(), torch.no_grad(), progress_ticker(progress, "encoding") as tick:
        for places in batches:
            batch = split.batch(places).to(model.device)
            features = batch.features
            if features is None:
                features = model.backbone(batch.x)
                tick(int(places[-1]) + 1, len(split))
            parts.append((features, batch.y, None))
    with progress_ticker(progress, "audit") as tick:
        return audit_features(
            model,
            parts,
            context=context,
            metrics=metrics,
            repeats=repeats,
            resamples=resamples,
            seed=seed,
            tick=tick,
        )
