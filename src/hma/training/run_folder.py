"""Where a run keeps its files, that only one process writes there at a time, and its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from hma.errors import UserError
from hma.io.files import LOCK, HeldError, explain_write_errors, hold_lock
from hma.io.tensor_files import read_about, read_shapes, read_tensors, shapes_of, write_tensors
from hma.memory.growing import load_without_copy, shapes_to_load
from hma.methods import Learner
from hma.methods.frozen_state import (
    changing_state,
    frozen_sha256,
    load_changing_state,
)
from hma.training.checkpoints import Checkpoints


class RunFolder:
    """The files of a run.

    While it runs: ``checkpoints/`` and ``tensorboard/``. Once finished: ``record.json``,
    ``weights.safetensors`` (the selected epoch) and ``tensorboard/``.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.record = self.path / "record.json"
        self.weights = self.path / "weights.safetensors"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = Checkpoints(self.path / "checkpoints")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and hold it against another process for the length of the block.

        The lock ends with the process, however it ends.
        """
        with explain_write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        try:
            with hold_lock(self.path):
                yield
        except HeldError as error:
            raise UserError(
                f"another process is training in {self.path}; wait for it, or choose another folder"
            ) from error

    def expect_present(self) -> None:
        """Raise if the folder was removed meanwhile, so that no time is spent on lost work."""
        if not (self.path / LOCK).exists():
            raise UserError(
                f"{self.path} was removed while a run was training in it; start the run again"
            )


FROZEN = "frozen"
"""Where a file of weights has the hash of the frozen backbone that it goes with."""


def write_weights(path: Path, module: nn.Module) -> str:
    """Write what training may have changed in ``module``, and return the hash of the file."""
    still = frozen_sha256(module)
    about = None if still is None else {FROZEN: still}
    return write_tensors(path, changing_state(module), about=about)


def load_weights(learner: Learner, path: Path, sha256: str | None, remedy: str) -> None:
    """Give a learner the weights that a run kept; a frozen backbone must be the one of the run.

    Args:
        learner: Built as it was for the run, its frozen backbone with its weights.
        path: ``weights.safetensors`` of the run.
        sha256: Its recorded hash.
        remedy: What the reader of an error should do.
    """
    module = learner.module
    stored = read_shapes(path, remedy=remedy)
    wanted = shapes_to_load(module, shapes_of(changing_state(module)), stored)
    weights = read_tensors(path, sha256=sha256, expect=wanted, remedy=remedy)
    if read_about(path, remedy=remedy).get(FROZEN) != frozen_sha256(module):
        raise UserError(
            f"{path} was trained on a frozen backbone with other weights; give the same --weights, "
            f"or {remedy}"
        )
    with load_without_copy():
        load_changing_state(module, weights)
