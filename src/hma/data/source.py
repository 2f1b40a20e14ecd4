"""What a source is: rows of one kind, with or without labels, that can be shown to a person."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hma.data.task import Kind
from hma.errors import UserError
from hma.io.files import file_sha256
from hma.targets import Classes

if TYPE_CHECKING:
    from PIL.Image import Image


class Source(ABC):
    """Rows as they are on disk, before anything is fitted to them."""

    kind: ClassVar[Kind]
    """What a row is."""
    name: str
    """Short name, as printed in tables."""
    labels: Sequence[Any] | None
    """Raw label of every row: text, or where a row has several, a tuple; None without labels."""
    label_kind: str = Classes.kind
    """What the labels are, see ``hma.data.label_kinds.LABEL_KINDS``."""
    label_names: tuple[str, ...] = ("label",)
    """What several labels of a row, or one number, are called; classes are named by the labels."""
    skipped: Sequence[str] = ()
    """Files left out because they cannot be read."""
    skip_missing_labels: bool = False
    """Whether rows without a label are left out, rather than refused."""
    told: Callable[[int, int], None] | None = None
    """Called with the rows that are read, and of how many, while a preparation is fitted."""
    given: "Mapping[str, Source]" = MappingProxyType({})
    """Rows to validate and to test on, where they come with the source."""

    @property
    def labels_from(self) -> str:
        """What holds the labels, for messages."""
        return f"the label of {self.name}"

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def describe(self, place: int) -> str:
        """Say in a few words which row ``place`` is."""

    def describe_all(self, places: Sequence[int]) -> list[str]:
        """Say which rows those at ``places`` are, in one go."""
        return [self.describe(place) for place in places]

    def up_to(self, end: int) -> Self:
        """Return the source with its rows before ``end``; others only if they are known anyway.

        For who looks at a few rows: of a long file no more has to be read.
        """
        return self

    def without_labels(self) -> Self:
        """Return the rows as if they had no labels, for who asks what they are."""
        part = copy(self)
        part.labels = None
        return part

    def thumbnail(self, place: int) -> "Image | None":
        """Return a picture of row ``place``; None where rows are no pictures."""
        return None

    def facts(self) -> dict[str, Any]:
        """Say in JSON values what a record should tell of the rows beside their name and hash."""
        return {}

    @abstractmethod
    def fingerprint(self) -> str:
        """Return the SHA-256 of the content."""


def expect_kind(source: Source, kind: Kind) -> None:
    """Raise unless ``source`` holds rows of ``kind``."""
    if source.kind != kind:
        raise UserError(
            f"{source.name} holds rows of kind {source.kind!r}, but the model was prepared for "
            f"{kind!r}; give a source of that kind"
        )


def array_fingerprint(array: NDArray[Any], labels: Sequence[Any] | None) -> str:
    """Return the SHA-256 of an array and labels."""
    digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    digest.update(repr(None if labels is None else list(labels)).encode())
    return digest.hexdigest()


def files_fingerprint(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 of files and of the names they go by."""
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name}\n".encode(errors="surrogateescape"))
        digest.update(bytes.fromhex(file_sha256(file)))
    return digest.hexdigest()
