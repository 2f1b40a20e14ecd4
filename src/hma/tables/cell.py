"""One number of a table: a task, a method and a seed under a budget."""

from pathlib import PurePosixPath
from typing import NamedTuple


class Cell(NamedTuple):
    """Which number; its names are safe in paths.

    Example:
        >>> print(Cell("F2", "small", "mlp-14", "HMA", 3))
        F2 small mlp-14/HMA seed 3
    """

    table: str
    budget: str
    task: str
    method: str
    seed: int

    @property
    def path(self) -> PurePosixPath:
        """Where its files are, below a folder of results, without their suffix."""
        return PurePosixPath(self.table, self.budget, self.task, self.method, str(self.seed))

    def __str__(self) -> str:
        return f"{self.table} {self.budget} {self.task}/{self.method} seed {self.seed}"
