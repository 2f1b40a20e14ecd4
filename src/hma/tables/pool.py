"""What runs cells, seen from the loop that hands them out."""

from dataclasses import dataclass
from typing import Literal, Protocol

from hma.tables.cell import Cell

End = Literal["done", "failed", "busy", "absent", "stopped"]
"""How a cell ended: 'busy' if another process has it, 'absent' if its data is not there."""


@dataclass(frozen=True)
class Moved:
    """A cell got on."""

    cell: Cell
    steps: int
    total: int


@dataclass(frozen=True)
class Ended:
    """A cell is no longer running."""

    cell: Cell
    end: End
    message: str = ""


class Pool(Protocol):
    """Runs several cells at a time."""

    size: int
    """Most cells at a time."""

    def start(self, cell: Cell) -> None:
        """Begin with a cell."""
        ...

    def events(self, seconds: float) -> list[Moved | Ended]:
        """Return what has happened, after at most so many seconds."""
        ...

    def stop(self) -> None:
        """Ask all running cells to write a checkpoint and end."""
        ...

    def close(self) -> None:
        """Give everything back; running cells end."""
        ...
