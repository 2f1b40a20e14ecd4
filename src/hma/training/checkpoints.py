"""A run between two steps on disk and back, bit for bit: tensors and JSON, never pickle."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hma.errors import UserError
from hma.io.files import FileError, explain_write_errors
from hma.io.json_files import finite_or_none, none_to_nan, read_json, validate, write_json
from hma.io.tensor_files import read_tensors, write_tensors
from hma.methods.frozen_state import changing_state, load_changing_state
from hma.training.cost import Stopwatch
from hma.training.identity import Identity, versions
from hma.training.loop import Standing, Training
from hma.training.optimizer import load_optimizer_tensors, optimizer_tensors
from hma.training.randomness import RandomState, random_state, restore_random_state
from hma.training.record import EPOCH

KEPT = 2
FORMAT = 1
SHAPE = {
    "format": int,
    "step": int,
    "tensors": str,
    "tensors_sha256": str,
    "values": dict,
}


@dataclass(frozen=True)
class Checkpoint:
    """A run between two steps."""

    step: int
    tensors: dict[str, Tensor]
    values: dict[str, Any]


class Checkpoints:
    """The checkpoints in a folder: written whole, validate by hash, the last two kept.

    The tensors go to ``step-N.safetensors`` first, then ``step-N.json`` with their name and hash,
    so a crash at any moment leaves the checkpoint before it, or the new one. A step is written
    twice where its validation begins and where it ends; the second time its tensors have another
    name, so that those of the first stay whole until they are not needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint; of the older ones only the latest stays."""
        manifest = self._manifest(checkpoint.step)
        weights, other = self._tensors(checkpoint.step)
        with explain_write_errors(weights):
            self.folder.mkdir(parents=True, exist_ok=True)
        if manifest.exists() and read_json(manifest, SHAPE, sealed=True)["tensors"] == weights.name:
            weights, other = other, weights
        sha256 = write_tensors(weights, checkpoint.tensors)
        body = {
            "format": FORMAT,
            "step": checkpoint.step,
            "tensors": weights.name,
            "tensors_sha256": sha256,
            "values": finite_or_none(checkpoint.values),
        }
        write_json(manifest, body, sealed=True, indent=None)
        _remove(other)
        for step in self.steps()[:-KEPT]:
            self._remove(step)

    def latest(self) -> Checkpoint | None:
        """Return the latest checkpoint that is whole; a damaged one is removed with a warning."""
        for step in reversed(self.steps()):
            try:
                return self._read(step)
            except FileError as error:
                self._remove(step)
                others = self.steps()
                instead = f"step {others[-1]}" if others else "the beginning"
                warnings.warn(
                    f"the checkpoint of step {step} is damaged ({error}); it was removed and the "
                    f"run goes on from {instead}",
                    stacklevel=2,
                )
        return None

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in order."""
        names = [path.stem.removeprefix("step-") for path in self.folder.glob("step-*.json")]
        return sorted(int(name) for name in names if name.isdecimal())

    def clear(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for step in self.steps():
            self._remove(step)
        for weights in self.folder.glob("step-*.safetensors"):
            _remove(weights)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _manifest(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}.json"

    def _tensors(self, step: int) -> tuple[Path, Path]:
        """Return the two names that the tensors of a step may have."""
        first = self._manifest(step).with_suffix(".safetensors")
        return first, first.with_stem(f"{first.stem}-again")

    def _remove(self, step: int) -> None:
        for path in (self._manifest(step), *self._tensors(step)):
            _remove(path)

    def _read(self, step: int) -> Checkpoint:
        manifest = self._manifest(step)
        body = read_json(manifest, SHAPE, sealed=True)
        if body["format"] != FORMAT:
            raise UserError(
                f"{manifest} has format {body['format']}, this hma reads {FORMAT}; continue with "
                "the version that wrote it, or train in another folder"
            )
        named = {path.name: path for path in self._tensors(step)}
        name = body["tensors"]
        if name not in named:
            raise FileError(f"{manifest} is damaged: it names tensors of something else: {name!r}")
        tensors = read_tensors(named[name], sha256=body["tensors_sha256"])
        return Checkpoint(step, tensors, body["values"])


def _remove(path: Path) -> None:
    if path.is_dir():
        rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
    "frozen": str | None,
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
    if values["frozen"] != training.frozen:
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
