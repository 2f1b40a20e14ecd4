"""Training and inference on rows held in memory: the loop behind the estimators.

It is a loop of its own because ``partial_fit`` goes on with one optimizer over many calls, and
because weights here are relative to all rows, not to those of a batch.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from hma.errors import UserError, wrong_choice
from hma.memory.rows import EncodedRows
from hma.memory.slots import draw_rows
from hma.metrics import temperature_for
from hma.model import MemoryModel
from hma.questions.row_order import SerialCorrelation
from hma.training import Recipe
from hma.training.loop import apply_temperature
from hma.training.optimizer import learning_rate, make_optimizer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_TO_HOLD_OUT = 100
"""Distinct rows from which on some are held out without being asked to."""


class WeightedRows(NamedTuple):
    """Rows that differ from each other in input or label, and how much each of them counts.

    Shape:
        - ``x`` ``(N, features)``; ``labels`` ``(N,)``, of several labels ``(N, T)``; ``weight``,
          ``ids`` ``(N,)``.
    """

    x: Floats
    labels: NDArray[Any]
    weight: Floats
    ids: Integers

    def at(self, places: Any) -> "WeightedRows":
        """Return the rows at ``places``."""
        return WeightedRows(*(part[places] for part in self))

    def digests(self) -> Iterator[bytes]:
        """Yield what tells rows apart by their input and label."""
        for x, label in zip(self.x, self.labels, strict=True):
            yield blake2b(x.tobytes() + label.tobytes(), digest_size=16).digest()


def check_weights(sample_weight: Any, labels: NDArray[Any]) -> Floats:
    """Return one weight of at least 0 for each of the labels, not all of them 0; 1 for None."""
    weight: Floats = _check_sample_weight(sample_weight, labels, dtype=np.float64)
    if (weight < 0).any():
        first = int(np.flatnonzero(weight < 0)[0])
        raise UserError(
            f"sample_weight must be at least 0, got {weight[first]} for row {first}; "
            "a weight of 0 leaves a row out"
        )
    if not (weight > 0).any():
        raise UserError("sample_weight is zero for every row; at least one weight must be above 0")
    return weight


def join_copies(x: Floats, labels: NDArray[Any], weight: Floats) -> WeightedRows:
    """Leave out rows of weight 0 and merge equal rows into one that carries their weights' sum.

    What comes back depends on neither the order of the rows nor on whether a row is there
    twice or has weight 2, so neither does anything learned from it. The id of a row is the
    first place it has in ``x``.

    Example:
        >>> x = np.array([[3.0], [1.0], [3.0], [5.0]])
        >>> rows = join_copies(x, np.array([0, 1, 0, 1]), np.array([1.0, 1.0, 2.0, 0.0]))
        >>> sorted(zip(rows.x[:, 0].tolist(), rows.weight.tolist(), rows.ids.tolist()))
        [(1.0, 1.0, 1), (3.0, 3.0, 0)]
    """
    places = np.flatnonzero(weight > 0)
    keys = np.column_stack([x[places], labels[places]]) + 0.0  # -0.0 becomes 0.0
    whole_rows = np.dtype((np.void, keys.itemsize * keys.shape[1]))
    _, first, member = np.unique(
        keys.view(whole_rows)[:, 0], return_index=True, return_inverse=True
    )
    total: Floats = np.bincount(member, weights=weight[places], minlength=len(first)).astype(
        np.float64
    )
    kept = places[first]
    return WeightedRows(x[kept], labels[kept], total, kept.astype(np.int64))


def with_class_weight(rows: WeightedRows, class_weight: Any, classes: NDArray[Any]) -> WeightedRows:
    """Return the rows with weights multiplied by those of their classes, and without zeros.

    Args:
        rows: The rows, each with its sample weight.
        class_weight: None, a mapping from class to weight (1 for a class it does not name), or
            'balanced' to give every class the same total weight.
        classes: The classes, in the order of their ids.
    """
    if class_weight is None:
        return rows
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            choice = wrong_choice("class_weight", class_weight, ("balanced",))
            raise UserError(f"{choice}; or pass a dict from class to weight, or None")
        mass = np.bincount(rows.labels, weights=rows.weight, minlength=len(classes))
        of_class = mass.sum() / (len(classes) * np.where(mass > 0, mass, 1.0))
    else:
        of_class = _check_given_weights(class_weight, classes)
    weight = rows.weight * of_class[rows.labels]
    if not (weight > 0).any():
        raise UserError("class_weight is zero for every class that has rows")
    return rows._replace(weight=weight).at(weight > 0)


def _check_given_weights(class_weight: Any, classes: NDArray[Any]) -> Floats:
    if not isinstance(class_weight, Mapping):
        raise UserError(
            "class_weight must be a dict from class to weight, 'balanced' or None, "
            f"got {class_weight!r}"
        )
    names = classes.tolist()
    unknown = [name for name in class_weight if name not in names]
    if unknown and any(name not in class_weight for name in names):  # else rows of them are absent
        raise UserError(
            f"class_weight names {unknown}, which are not among the classes {names} of y"
        )
    weights = np.array([float(class_weight.get(name, 1.0)) for name in names])
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise UserError(f"class_weight must hold finite weights of at least 0, got {class_weight}")
    return weights


def can_hold_out(rows: WeightedRows, fraction: float | None) -> bool:
    """Tell whether rows are many enough to do without some, those of every class too."""
    if fraction is None or len(rows.labels) < LEAST_TO_HOLD_OUT:
        return False
    if rows.labels.dtype.kind != "i":
        return True
    counts = np.bincount(rows.labels)
    smallest = int(counts[counts > 0].min())
    return smallest >= 2 and int(fraction * len(rows.labels)) >= int((counts > 0).sum())


def hold_out(
    rows: WeightedRows, fraction: float | None, seed: int
) -> tuple[WeightedRows, WeightedRows | None]:
    """Return the rows to learn from and, unless ``fraction`` is None, a rest to stop by.

    Of classes it is stratified.
    """
    if fraction is None:
        return rows, None
    places = np.arange(len(rows.labels))
    try:
        train, held_out = train_test_split(
            places,
            test_size=fraction,
            stratify=rows.labels if rows.labels.dtype.kind == "i" else None,
            random_state=seed,
        )
    except ValueError as error:
        raise UserError(
            f"early_stopping cannot hold out {fraction:.0%} of {len(places)} distinct rows: "
            f"{error}; set early_stopping=False or another validation_fraction"
        ) from error
    return rows.at(train), rows.at(held_out)


# ----------------------------------------------------------------------------------------- the loop


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


def to_device(rows: WeightedRows, device: torch.device) -> TensorRows:
    """Return ``rows`` as tensors, inputs and weights in float32."""
    weight = rows.weight / rows.weight.mean()
    return TensorRows(
        torch.tensor(rows.x, dtype=torch.float32, device=device),
        torch.tensor(rows.labels, device=device),
        torch.tensor(weight, dtype=torch.float32, device=device),
        torch.tensor(rows.ids, device=device),
    )


@contextmanager
def isolate_randomness(device: torch.device) -> Iterator[None]:
    """Give torch's random state back as it was."""
    cards = list(range(torch.cuda.device_count())) if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cards):
        yield


def seed_of_epoch(seed: int, epoch: int) -> int:
    """Return the seed of an epoch's order and dropout, of no other epoch and of no building."""
    return seed * 1_000_003 + epoch + 1


class Chosen(NamedTuple):
    """What held-out rows decided, for a model that is to learn from these rows too."""

    epochs: int
    temperature: float
    memory: dict[str, Any]
    """What :meth:`hma.MemoryModel.after_training` found."""


def train_epochs(
    model: MemoryModel,
    rows: TensorRows,
    held_out: TensorRows | None,
    recipe: Recipe,
    *,
    seed: int,
    after_epoch: Callable[[float, float | None], None],
    chosen: Chosen | None = None,
) -> Chosen:
    """Run all epochs, or until the loss of ``held_out`` falls no more; then keep its best epoch.

    Probabilities are calibrated on ``held_out``, see :mod:`hma.training.loop`.

    Args:
        model: To be trained.
        rows: What it learns from.
        held_out: Rows that decide when to stop and what each answer counts; None for none.
        recipe: How to train.
        seed: Decides every random draw.
        after_epoch: Called with the loss of an epoch and, of ``held_out``, with theirs.
        chosen: What held-out rows decided before, in place of ``held_out``.
    """
    optimizer = make_optimizer(model, recipe)
    per_epoch = -(-len(rows.y) // recipe.batch_size)
    steps = recipe.steps_of(per_epoch)
    rate = learning_rate(recipe, per_epoch, steps)
    best, best_epoch, kept = math.inf, 0, None
    epochs = steps // per_epoch if chosen is None else chosen.epochs
    for epoch in range(epochs):
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
    temperature = 1.0 if chosen is None else chosen.temperature
    if kept is not None and held_out is not None:
        model.load_state_dict(kept)
        epochs = best_epoch + 1
        logits = logits_of(model, held_out.x, recipe.batch_size)
        temperature = temperature_for(logits, held_out.y, model.target, held_out.weight)
    apply_temperature(model, temperature)
    model.eval()
    found = model.after_training(
        lambda: encode_rows(model, rows),
        lambda: None if held_out is None else encode_rows(model, held_out),
        like=None if chosen is None else chosen.memory,
        seed=seed,
    )
    return Chosen(epochs, temperature, found)


def encode_rows(model: MemoryModel, rows: TensorRows) -> EncodedRows:
    """Return rows as the backbone encodes them, with their weights."""
    parts = rows.parts(ROWS_AT_ONCE)
    found = model.encode_rows((part.x, part.y, part.ids) for part in parts)
    assert found is not None
    return found._replace(weight=rows.weight)


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
        places = draw_rows(rows.y.cpu(), model.target, learned.slots_per_class)
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
