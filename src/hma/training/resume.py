"""A run between two steps as tensors and JSON values, and back, bit for bit."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hma.errors import UserError
from hma.io.json_files import none_to_nan, validate
from hma.methods.frozen_state import changing_state, load_changing_state
from hma.training.checkpoints import Checkpoint
from hma.training.identity import Identity
from hma.training.loop import Standing, Training
from hma.training.optimizer import load_optimizer_tensors, optimizer_tensors
from hma.training.provenance import versions
from hma.training.randomness import RandomState, random_state, restore_random_state
from hma.training.record import EPOCH
from hma.training.stopwatch import Stopwatch

VALUES = {
    "run": {"recipe": dict},
    "versions": dict[str, str],
    "processes": int,
    "standing": {
        "epoch": int,
        "step": int,
        "rows": int,
        "epochs": [EPOCH],
        "best_epoch": int | None,
        "best_score": float | None,
    },
    "scaler": dict,
    "stopwatch": {
        "seconds": float,
        "epoch_began": float,
        "epoch_seconds": list[float],
        "peak_memory_bytes": int,
    },
}
"""What a checkpoint says beside its tensors."""


def snapshot(training: Training, run: Identity, watch: Stopwatch) -> Checkpoint:
    """Return everything the next step depends on; every process of a run must call."""
    standing = training.standing
    tensors = {
        **_prefixed("module", changing_state(training.module)),
        **_prefixed("best", training.best),
        **_prefixed("optimizer", optimizer_tensors(training.optimizer)),
        **_prefixed("random", _random_of_all_processes(training)),
        "loss_sum": training.loss_sum,
    }
    values = {
        "run": run,
        "versions": dict(versions()),
        "processes": training.fabric.world_size,
        "standing": {
            "epoch": standing.epoch,
            "step": standing.step,
            "rows": standing.rows,
            "epochs": standing.epochs,
            "best_epoch": standing.best_epoch,
            "best_score": standing.best_score,
        },
        "scaler": training.fabric.strategy.precision.state_dict(),
        "frozen": training.frozen,
        "stopwatch": watch.to_json(),
    }
    return Checkpoint(training.step, tensors, values)


def expect_values(checkpoint: Checkpoint) -> None:
    """Raise unless a checkpoint holds what :func:`snapshot` puts into one."""
    try:
        validate(checkpoint.values, VALUES)
    except ValueError as error:
        raise _unfit(checkpoint, error) from error


def restore(training: Training, checkpoint: Checkpoint, watch: Stopwatch) -> None:
    """Put a run back to where :func:`snapshot` found it."""
    try:
        _restore(training, checkpoint, watch)
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError, OverflowError) as error:
        raise _unfit(checkpoint, error) from error


def _unfit(checkpoint: Checkpoint, error: Exception) -> UserError:
    why = " ".join(f"{type(error).__name__} {error}".split())
    return UserError(
        f"the checkpoint of step {checkpoint.step} does not fit this run: {why}; remove the "
        "folder with checkpoints to train from the beginning"
    )


def _restore(training: Training, checkpoint: Checkpoint, watch: Stopwatch) -> None:
    tensors, values = checkpoint.tensors, checkpoint.values
    device = training.fabric.device
    if values.get("frozen", training.frozen) != training.frozen:
        raise ValueError("the frozen backbone has other weights now")
    load_changing_state(training.module, _under("module", tensors))
    training.best = {name: value.to(device) for name, value in _under("best", tensors).items()}
    load_optimizer_tensors(training.optimizer, _under("optimizer", tensors).items())
    training.loss_sum.copy_(tensors["loss_sum"])
    training.fabric.strategy.precision.load_state_dict(values["scaler"])
    training.standing = _standing(values["standing"])
    watch.continue_from(values["stopwatch"])
    rank = training.fabric.global_rank
    if rank < values["processes"]:
        restore_random_state(_under(f"random.{rank}", tensors), device)


def _standing(values: dict[str, Any]) -> Standing:
    known = {name: value for name, value in values.items() if value is not None}
    return Standing(**known | {"epochs": none_to_nan(values["epochs"])})


def _random_of_all_processes(training: Training) -> RandomState:
    device = training.fabric.device
    own = training.random_before or random_state(device)
    if training.fabric.world_size == 1:
        return _prefixed("0", own)
    found: RandomState = {}
    for name, state in own.items():
        parts = [torch.empty_like(state, device=device) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, state.to(device))
        found |= {f"{rank}.{name}": part.cpu() for rank, part in enumerate(parts)}
    return found


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {n.removeprefix(start): value for n, value in tensors.items() if n.startswith(start)}
