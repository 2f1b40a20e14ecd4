"""What a source is: rows of one kind, with or without labels, that can be shown to a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hma.data.task import Kind
from hma.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image


class Source(Protocol):
    """Rows as they are on disk, before anything is fitted to them."""

    @property
    def name(self) -> str:
        """Short name, as printed in tables."""
        ...

    @property
    def kind(self) -> Kind:
        """What a row is."""
        ...

    @property
    def labels(self) -> Sequence[str] | None:
        """Raw label of every row; None where the source has none."""
        ...

    @property
    def skipped(self) -> Sequence[str]:
        """Files left out because they cannot be read."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def describe(self, place: int) -> str:
        """Say in a few words which row ``place`` is."""
        ...

    def thumbnail(self, place: int) -> "Image | None":
        """Return a picture of row ``place``, if the rows are pictures."""
        ...

    def fingerprint(self) -> str:
        """Return the SHA-256 of the content."""
        ...


def expect_kind(source: Source, kind: Kind) -> None:
    """Raise unless ``source`` holds rows of ``kind``."""
    if source.kind != kind:
        raise UserError(
            f"{source.name} holds rows of kind {source.kind!r}, but the model was prepared for "
            f"{kind!r}; give a source of that kind"
        )
