"""Where a run keeps its files, and that only one process writes there at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hma.errors import UserError
from hma.io.files import LOCK, HeldError, explain_write_errors, hold_lock
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
