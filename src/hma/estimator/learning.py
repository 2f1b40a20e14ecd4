"""Training and inference on rows held in memory: the loop behind the estimators.

It is a loop of its own because ``partial_fit`` goes on with one optimizer over many calls, and
because weights here are relative to all rows, not to those of a batch.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from hma.estimator.options import TrainingOptions
from hma.estimator.rows import WeightedRows
from hma.metrics import temperature_for
from hma.model import HMA
from hma.training.calibration import cool

ROWS_AT_ONCE = 1024  # in a prediction that does not depend on its neighbours


class TensorRows(NamedTuple):
    """Rows on the device of the model; the weights have mean 1."""

    x: Tensor
    y: Tensor
    weight: Tensor
    ids: Tensor

    def at(self, places: Tensor) -> "TensorRows":
        """Return the rows at ``places``."""
        return TensorRows(*(part[places] for part in self))


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


def optimizer_of(model: HMA, learning_rate: float) -> Optimizer:
    """Return an optimizer of everything in ``model`` that trains."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return Adam(trained, lr=learning_rate, fused=True)


def rate_in_epoch(epoch: int, epochs: int, learning_rate: float) -> float:
    """Return the learning rate: constant for half of the epochs, then falling in a line to 0.

    Example:
        >>> [rate_in_epoch(epoch, 8, 1.0) for epoch in range(8)]
        [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    return learning_rate * min(1.0, 2.0 * (1.0 - epoch / epochs))


def train_epochs(
    model: HMA,
    rows: TensorRows,
    held_out: TensorRows | None,
    training: TrainingOptions,
    *,
    seed: int,
    after_epoch: Callable[[float, float | None], None],
) -> None:
    """Run all epochs, or until the loss of ``held_out`` falls no more; then keep its best epoch.

    Probabilities are calibrated on ``held_out``, see :mod:`hma.training.calibration`.
    """
    optimizer = optimizer_of(model, training.learning_rate)
    best, waited, kept = math.inf, 0, None
    for epoch in range(training.max_epochs):
        for group in optimizer.param_groups:
            group["lr"] = rate_in_epoch(epoch, training.max_epochs, training.learning_rate)
        loss = train_epoch(model, optimizer, rows, training.batch_size, seed_of_epoch(seed, epoch))
        if held_out is None:
            after_epoch(loss, None)
            continue
        validation = mean_loss(model, held_out, training.batch_size)
        after_epoch(loss, validation)
        waited += 1
        if validation < best:
            best, waited = validation, 0
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        if waited >= training.patience:
            break
    if kept is not None and held_out is not None:
        model.load_state_dict(kept)
        logits = logits_of(model, held_out.x, training.batch_size)
        cool(model, temperature_for(logits, held_out.y, model.target, held_out.weight))


def train_epoch(
    model: HMA, optimizer: Optimizer, rows: TensorRows, batch_size: int, seed: int
) -> float:
    """Take one pass over ``rows`` in batches of nearly one size; return the mean loss.

    A loss that is not finite ends the pass and is returned.

    Order and dropout follow from ``seed`` alone. Weights are not divided by their sum over the
    batch: a batch of light rows makes a small step.
    """
    torch.manual_seed(seed)
    model.train()
    batches = -(-len(rows.y) // batch_size)
    total = 0.0
    for places in torch.randperm(len(rows.y)).tensor_split(batches):
        batch = rows.at(places.to(rows.y.device))
        each = model.target.loss(model(batch.x), batch.y)
        loss = (each * batch.weight).mean()
        value = float(loss.detach())
        if not math.isfinite(value):
            return value
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.remember(batch.x, batch.y, ids=batch.ids)
        total += value * len(places)
    return total / len(rows.y)


@torch.no_grad()
def logits_of(model: HMA, x: Tensor, batch_size: int) -> Tensor:
    """Return the logits of ``x`` in eval mode, part by part; ``batch_size`` rows see each other."""
    model.eval()
    size = batch_size if model.context == "batch" else ROWS_AT_ONCE
    return torch.cat([model(part) for part in torch.split(x, size)])


def mean_loss(model: HMA, rows: TensorRows, batch_size: int) -> float:
    """Return the weighted mean loss in eval mode."""
    each = model.target.loss(logits_of(model, rows.x, batch_size), rows.y)
    return float((each * rows.weight).sum() / rows.weight.sum())
