"""Training and inference on rows held in memory: the loop behind the estimators.

It is a loop of its own because ``partial_fit`` goes on with one optimizer over many calls, and
because weights here are relative to all rows, not to those of a batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from hma.estimator.rows import WeightedRows
from hma.memory.encoded_rows import EncodedRows
from hma.memory.slots import drawn_rows
from hma.metrics import temperature_for
from hma.model import MemoryModel
from hma.questions.row_order import SerialCorrelation
from hma.training import Recipe
from hma.training.calibration import cool
from hma.training.optimizer import make_optimizer
from hma.training.schedule import learning_rate

ROWS_AT_ONCE = 1024  # in a prediction that does not depend on its neighbours


class TensorRows(NamedTuple):
    """Rows on the device of the model; the weights have mean 1."""

    x: Tensor
    y: Tensor
    weight: Tensor
    ids: Tensor

    def at(self, places: Tensor | slice) -> "TensorRows":
        """Return the rows at ``places``."""
        return TensorRows(*(part[places] for part in self))

    def parts(self, size: int) -> "Iterator[TensorRows]":
        """Yield the rows in order, so many at a time."""
        for first in range(0, len(self.y), size):
            yield self.at(slice(first, first + size))


def on_device(rows: WeightedRows, device: torch.device) -> TensorRows:
    """Return ``rows`` as tensors, inputs and weights in float32."""
    weight = rows.weight / rows.weight.mean()
    return TensorRows(
        torch.tensor(rows.x, dtype=torch.float32, device=device),
        torch.tensor(rows.labels, device=device),
        torch.tensor(weight, dtype=torch.float32, device=device),
        torch.tensor(rows.ids, device=device),
    )


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Give torch's random state back as it was."""
    cards = list(range(torch.cuda.device_count())) if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cards):
        yield


def seed_of_epoch(seed: int, epoch: int) -> int:
    """Return the seed of an epoch's order and dropout, of no other epoch and of no building."""
    return seed * 1_000_003 + epoch + 1


def train_epochs(
    model: MemoryModel,
    rows: TensorRows,
    held_out: TensorRows | None,
    recipe: Recipe,
    *,
    seed: int,
    after_epoch: Callable[[float, float | None], None],
) -> None:
    """Run all epochs, or until the loss of ``held_out`` falls no more; then keep its best epoch.

    Probabilities are calibrated on ``held_out``, see :mod:`hma.training.calibration`.
    """
    optimizer = make_optimizer(model, recipe)
    per_epoch = -(-len(rows.y) // recipe.batch_size)
    steps = recipe.steps_of(per_epoch)
    rate = learning_rate(recipe, per_epoch, steps)
    best, best_epoch, kept = math.inf, 0, None
    for epoch in range(steps // per_epoch):
        rates = [rate(step) for step in range(epoch * per_epoch, (epoch + 1) * per_epoch)]
        loss = train_epoch(model, optimizer, rows, recipe, rates, seed_of_epoch(seed, epoch))
        if held_out is None:
            after_epoch(loss, None)
            continue
        validation = mean_loss(model, held_out, recipe.batch_size)
        after_epoch(loss, validation)
        if validation < best:
            best, best_epoch = validation, epoch
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        waited, enough = epoch - best_epoch, recipe.patience or math.inf
        if waited >= enough and waited * per_epoch >= recipe.patience_steps:
            break
    if kept is not None and held_out is not None:
        model.load_state_dict(kept)
        logits = logits_of(model, held_out.x, recipe.batch_size)
        cool(model, temperature_for(logits, held_out.y, model.target, held_out.weight))
    model.after_training(
        lambda: encode_rows(model, rows),
        lambda: None if held_out is None else encode_rows(model, held_out),
        seed=seed,
    )


@torch.no_grad()
def encode_rows(model: MemoryModel, rows: TensorRows) -> EncodedRows:
    """Return rows as the backbone encodes them."""
    model.eval()
    parts = [model.backbone(part.x) for part in rows.parts(ROWS_AT_ONCE)]
    return EncodedRows(torch.cat(parts), rows.y, rows.ids, rows.weight)


def train_epoch(
    model: MemoryModel,
    optimizer: Optimizer,
    rows: TensorRows,
    recipe: Recipe,
    rates: Sequence[float],
    seed: int,
) -> float:
    """Take one pass over ``rows`` in as many batches as ``rates``; return the mean loss.

    A loss that is not finite ends the pass and is returned.

    Order and dropout follow from ``seed`` alone. Weights are not divided by their sum over the
    batch: a batch of light rows makes a small step.
    """
    torch.manual_seed(seed)
    _start_slots(model, rows)
    model.train()
    total = 0.0
    order = torch.randperm(len(rows.y)).tensor_split(len(rates))
    for places, rate in zip(order, rates, strict=True):
        batch = rows.at(places.to(rows.y.device))
        output = model.output(batch.x)
        each = model.losses(output, batch.y, ids=batch.ids)
        loss = (each * batch.weight).mean()
        value = float(loss.detach())
        if not math.isfinite(value):
            return value
        for group in optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if recipe.clip_norm is not None:
            clip_grad_norm_(model.parameters(), recipe.clip_norm)
        optimizer.step()
        total += value * len(places)
        model.after_step(batch.x, batch.y, ids=batch.ids)
    return total / len(rows.y)


def _start_slots(model: MemoryModel, rows: TensorRows) -> None:
    """Start slots from rows, where they are to and have not yet."""
    learned = model.synthetic
    if learned is not None and model.waits_for_rows:
        places = drawn_rows(rows.y.cpu(), model.target, learned.slots_per_class)
        parts = rows.at(places.to(rows.y.device)).parts(ROWS_AT_ONCE)
        model.start_slots((part.x, part.y) for part in parts)


@torch.no_grad()
def logits_of(model: MemoryModel, x: Tensor, batch_size: int) -> Tensor:
    """Return the logits of ``x`` in eval mode, part by part; ``batch_size`` rows see each other."""
    model.eval()
    size = batch_size if model.context == "batch" else ROWS_AT_ONCE
    return torch.cat([model(part) for part in torch.split(x, size)])


def answers_of(model: MemoryModel, x: Tensor, batch_size: int) -> Tensor:
    """Return the logits of new rows; warn where rows that see each other come in an order."""
    logits = logits_of(model, x, batch_size)
    if model.context == "batch":
        following = SerialCorrelation()
        following.add(model.target.expected(logits))
        following.warn(stacklevel=4)
    return logits


def mean_loss(model: MemoryModel, rows: TensorRows, batch_size: int) -> float:
    """Return the weighted mean loss in eval mode."""
    each = model.target.loss(logits_of(model, rows.x, batch_size), rows.y)
    return float((each * rows.weight).sum() / rows.weight.sum())
