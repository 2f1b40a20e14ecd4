"""Checkpoints of a run under way: tensors and JSON, never pickle, the last two kept."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from torch import Tensor

from hma.errors import UserError
from hma.io.files import FileError, explain_write_errors
from hma.io.json_files import Default, finite_or_none, read_json, write_json
from hma.io.tensor_files import read_tensors, write_tensors

KEPT = 2
FORMAT = 1
SHAPE = {
    "format": int,
    "step": int,
    "tensors": Default(str | None),  # None before a step could be written twice
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
    """The checkpoints in a folder: written whole, checked by hash, the last two kept.

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
        name = body["tensors"] or next(iter(named))
        if name not in named:
            raise FileError(f"{manifest} is damaged: it names tensors of something else: {name!r}")
        tensors = read_tensors(named[name], sha256=body["tensors_sha256"])
        return Checkpoint(step, tensors, body["values"])


def _remove(path: Path) -> None:
    if path.is_dir():
        rmtree(path)
    else:
        path.unlink(missing_ok=True)
