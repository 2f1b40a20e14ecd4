"""A data set with a name, and what a user asks of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hma.data.prepared import Prepared
from hma.data.source import Source
from hma.errors import UserError
from hma.options.preparation import PreparationOptions


@dataclass(frozen=True)
class SetRequest:
    """What a user wants of a data set.

    Args:
        name: As the user wrote it.
        groups: The named groups of its pattern.
        seed: Decides the split, and all else that is left to chance.
        data_root: Where the data is; ``$HMA_DATA`` or the cache folder if not given.
        download: Whether it may be fetched.
        options: Choices about the input.
        told: Called with the rows that are encoded or decoded, and of how many.
    """

    name: str
    groups: Mapping[str, str | None]
    seed: int = 0
    data_root: Path | None = None
    download: bool = False
    options: PreparationOptions | None = None
    told: Callable[[int, int], None] | None = None

    def expect_no_options(self) -> None:
        """Raise if there are choices about data that is prepared in one way only."""
        if self.options not in (None, PreparationOptions()):
            raise UserError(
                f"{self.name} is prepared in one way only; leave the options of the input out"
            )

    def number(self, group: str) -> int | None:
        """Return the number of training labels per class that the name asks for, if it does."""
        text = self.groups.get(group)
        if text is not None and int(text) < 1:
            raise UserError(f"{self.name} must ask for at least 1 label per class")
        return None if text is None else int(text)


@dataclass(frozen=True)
class NamedSet:
    """A data set that has a name.

    Args:
        written: Its names as a user writes them; N is a number of training labels per class.
        pattern: Regular expression that all these names match.
        prepare: Splits and prepares it.
        open: Returns its rows, all splits together; by default those of ``prepare``.
    """

    written: tuple[str, ...]
    pattern: str
    prepare: Callable[[SetRequest], Prepared]
    open: Callable[[SetRequest], Source] | None = None
