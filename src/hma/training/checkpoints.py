"""Checkpoints of a run under way: tensors and JSON, never pickle, the last two kept."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from torch import Tensor

from hma.errors import UserError
from hma.files import FileError, no_lost_writes
from hma.json_files import finite_or_none, read_json, write_json
from hma.tensor_files import read_tensors, write_tensors

KEPT = 2
FORMAT = 1
SHAPE = {"format": int, "step": int, "tensors_sha256": str, "values": dict}


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
        sha256 = write_tensors(weights, checkpoint.tensors)
        body = {
            "format": FORMAT,
            "step": checkpoint.step,
            "tensors_sha256": sha256,
            "values": finite_or_none(checkpoint.values),
        }
        write_json(manifest, body, sealed=True, indent=None)
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

    def _remove(self, step: int) -> None:
        manifest = self._manifest(step)
        _remove(manifest)
        _remove(manifest.with_suffix(".safetensors"))

    def _read(self, step: int) -> Checkpoint:
        manifest = self._manifest(step)
        body = read_json(manifest, SHAPE)
        if body["format"] != FORMAT:
            raise UserError(
                f"{manifest} has format {body['format']}, this hma reads {FORMAT}; continue with "
                "the version that wrote it, or train in another folder"
            )
        weights = manifest.with_suffix(".safetensors")
        tensors = read_tensors(weights, sha256=body["tensors_sha256"])
        return Checkpoint(step, tensors, body["values"])


def _remove(path: Path) -> None:
    if path.is_dir():
        rmtree(path)
    else:
        path.unlink(missing_ok=True)
