"""Predictions of a learner, batch by batch, and their scores in every inference context."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor

from hma.data import Split
from hma.distributed import gather_rows, world_size
from hma.errors import UserError, wrong_choice
from hma.methods import Learner
from hma.metrics import scores
from hma.targets import Target
from hma.training.order import evaluation_order
from hma.training.record import Scores


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
        ids, logits = _predicted(learner, split, places)
        yield ids.cpu(), logits.cpu()


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
    by_context: Scores = {}
    for context in learner.contexts if contexts is None else contexts:
        logits = all_logits(learner, split, batch_size=batch_size, context=context, tick=tick)
        by_context[context] = scores(logits, split.labels, metrics, target=target)
    learner.use(learner.contexts[0])
    return by_context


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
    _use(learner, context)
    learner.module.eval()
    batches, tick = _batches(context, len(split), batch_size), tick or _nothing
    processes = world_size()
    rank = dist.get_rank() if processes > 1 else 0
    mine = []
    for first in range(0, len(batches), processes):
        turn = first + rank
        own = turn < len(batches)  # with nothing left to do a process still takes part
        _, logits = _predicted(learner, split, batches[turn if own else 0])
        mine.append(logits if own else logits[:0])
        tick()
    gathered = gather_rows(torch.cat(mine)).cpu()  # (N, C), rank by rank
    order = torch.cat([places for r in range(processes) for places in batches[r::processes]])
    logits = torch.empty_like(gathered)
    logits[order] = gathered
    return logits


@torch.no_grad()
def _predicted(learner: Learner, split: Split, places: Tensor) -> tuple[Tensor, Tensor]:
    batch = split.batch(places)
    held = next(chain(learner.module.parameters(), learner.module.buffers()), None)
    if held is not None and held.device.type != "cpu":
        batch = batch.to(held.device)
    return batch.ids, learner.predict(batch).float()


def _batches(context: str, rows: int, batch_size: int) -> tuple[Tensor, ...]:
    return torch.split(evaluation_order(context, rows), batch_size) if rows else ()


def _use(learner: Learner, context: str) -> None:
    if context not in learner.contexts:
        raise UserError(wrong_choice("context", context, learner.contexts))
    learner.use(context)


def _nothing() -> None:
    pass
