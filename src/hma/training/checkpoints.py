"""Checkpoints of a run under way: tensors and JSON, never pickle, the last two kept."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hma.errors import UserError
from hma.files import written_whole
from hma.training.record import finite_or_none
from hma.training.writing import no_lost_writes

KEPT = 2
FORMAT = 1


class DamagedCheckpointError(ValueError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """A run between two steps."""

    step: int
    tensors: dict[str, Tensor]
    values: dict[str, Any]


class Checkpoints:
    """The checkpoints in a folder: written whole, checked by hash, the last two kept.

    The tensors go to ``step-N.safetensors`` first, then ``step-N.json`` with their hash, so a
    crash at any moment leaves the checkpoint before it, or the new one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint; of the older ones only the latest stays."""
        manifest = self._manifest(checkpoint.step)
        weights = manifest.with_suffix(".safetensors")
        with no_lost_writes(weights):
            self.folder.mkdir(parents=True, exist_ok=True)
            sha256 = write_tensors(checkpoint.tensors, weights)
        body = {
            "format": FORMAT,
            "step": checkpoint.step,
            "tensors_sha256": sha256,
            "values": finite_or_none(checkpoint.values),
        }
        text = json.dumps(body | {"sha256": _hash_of(body)}, allow_nan=False)
        with no_lost_writes(manifest), written_whole(manifest) as temporary:
            temporary.write_text(text, encoding="utf-8")
        for step in self.steps()[:-KEPT]:
            self._remove(step)

    def latest(self) -> Checkpoint | None:
        """Return the latest checkpoint that is whole; a damaged one is removed with a warning."""
        self._tidy()
        for step in reversed(self.steps()):
            try:
                return self._read(step)
            except DamagedCheckpointError as error:
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
        return sorted(
            int(path.stem.removeprefix("step-")) for path in self.folder.glob("step-*.json")
        )

    def clear(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for step in self.steps():
            self._remove(step)
        self._tidy()
        for weights in self.folder.glob("step-*.safetensors"):
            weights.unlink()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _tidy(self) -> None:
        """Remove what a process left behind that was killed while it wrote."""
        for leftover in self.folder.glob(".step-*"):
            if leftover.is_dir():
                rmtree(leftover)
            else:
                leftover.unlink()

    def _manifest(self, step: int) -> Path:
        return self.folder / f"step-{step:09d}.json"

    def _remove(self, step: int) -> None:
        manifest = self._manifest(step)
        manifest.unlink(missing_ok=True)
        manifest.with_suffix(".safetensors").unlink(missing_ok=True)

    def _read(self, step: int) -> Checkpoint:
        manifest = self._manifest(step)
        try:
            body = json.loads(manifest.read_text(encoding="utf-8"))
            stated = body.pop("sha256")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise DamagedCheckpointError(f"{manifest.name} cannot be read: {error}") from error
        if stated != _hash_of(body):
            raise DamagedCheckpointError(f"{manifest.name} does not match its own hash")
        if body["format"] != FORMAT:
            raise UserError(
                f"{manifest} has format {body['format']}, this hma reads {FORMAT}; continue with "
                "the version that wrote it, or train in another folder"
            )
        weights = manifest.with_suffix(".safetensors")
        try:
            tensors = read_tensors(weights, body["tensors_sha256"])
        except FileNotFoundError as error:
            raise DamagedCheckpointError(f"{weights.name} is missing") from error
        return Checkpoint(step, tensors, body["values"])


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> str:
    """Write tensors as safetensors, whole or not at all, and return the file's hash."""
    plain, seen = {}, set()
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name} holds a {type(tensor).__name__}, and only tensors can be saved without "
                "pickle; keep it in a buffer"
            )
        kept = tensor.detach().cpu().contiguous()
        storage = kept.untyped_storage().data_ptr()
        plain[name] = kept.clone() if storage in seen else kept  # tied weights share storage
        seen.add(storage)
    with written_whole(path) as temporary:
        save_file(plain, temporary)
        return _sha256(temporary)


def read_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    """Read tensors, after checking that they are what was written."""
    if _sha256(path) != sha256:
        raise DamagedCheckpointError(f"{path.name} does not match its hash")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise DamagedCheckpointError(f"{path.name} cannot be read: {error}") from error


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_of(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
