"""What a source is: rows of one kind, with or without labels, that can be shown to a person."""

import codecs
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hma.data.labels import CLASSES, LabelKind
from hma.errors import UserError, reason
from hma.io.files import file_sha256
from hma.options.preparation import Kind

if TYPE_CHECKING:
    from PIL.Image import Image


UTF_8 = "utf-8-sig"
"""UTF-8, with or without the mark that some programs put in front."""
CHARACTERS = 1 << 20
"""Read at once where a whole file is looked at."""


class Source(ABC):
    """Rows as they are on disk, before anything is fitted to them."""

    kind: ClassVar[Kind]
    """What a row is."""
    name: str
    """Short name, as printed in tables."""
    labels: Sequence[Any] | None
    """Raw label of every row: text, or where a row has several, a tuple; None without labels."""
    label_kind: LabelKind = CLASSES
    """What the labels are."""
    label_names: tuple[str, ...] = ("label",)
    """What several labels of a row, or one number, are called; classes are named by the labels."""
    skipped: Sequence[str] = ()
    """Files left out because they cannot be read."""
    skip_missing_labels: bool = False
    """Whether rows without a label are left out, rather than refused."""
    told: Callable[[int, int], None] | None = None
    """Called with the rows read so far and the rows in all while a preparation is fitted."""
    given: "Mapping[str, Source]" = MappingProxyType({})
    """Rows to validate and to test on, where they come with the source."""

    @classmethod
    def expect(cls, source: "Source") -> Self:
        """Return ``source`` as a source of this class; raise unless it holds rows of its kind."""
        expect_kind(source, cls.kind)
        return cast("Self", source)

    @property
    def labels_from(self) -> str:
        """What holds the labels, for messages."""
        return f"the label of {self.name}"

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def describe(self, place: int) -> str:
        """Describe row ``place`` in a few words."""

    def describe_all(self, places: Sequence[int]) -> list[str]:
        """Describe the rows at ``places``, reading the file once."""
        return [self.describe(place) for place in places]

    def load(self) -> None:
        """Read all rows into memory, for callers that use them more than once."""
        return

    def encode_labels(self, places: Sequence[int], names: Sequence[str]) -> Tensor:
        """Return the labels of the rows at ``places`` as their target takes them."""
        labels = self.labels or ()
        return self.label_kind.encode([labels[place] for place in places], names, self.labels_from)

    def up_to(self, end: int) -> Self:
        """Return the source cut to its rows before ``end``; rows already in memory may stay.

        For callers that need a few rows: no more of a long file is read.
        """
        return self

    def without_labels(self) -> Self:
        """Return the same rows without their labels."""
        part = copy(self)
        part.labels = None
        return part

    def thumbnail(self, place: int) -> "Image | None":
        """Return a picture of row ``place``; None if rows are not images."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return in JSON values what a record says of the rows besides their name and hash."""
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


def codec(encoding: str | None) -> str:
    """Return Python's codec for an encoding that a user names; UTF-8 if none is named.

    Example:
        >>> codec(None), codec("UTF8"), codec("latin-1")
        ('utf-8-sig', 'utf-8-sig', 'latin-1')
    """
    if encoding is None or encoding.lower() in ("utf-8", "utf8"):
        return UTF_8
    try:
        "".encode(encoding)
    except (LookupError, ValueError) as error:
        raise UserError(
            f"encoding must be one that Python knows, such as utf-8, latin-1, cp1252 or utf-16, "
            f"got {encoding!r}"
        ) from error
    return encoding


def guess_encoding(path: Path) -> str | None:
    """Return the likely encoding of a text file that is not UTF-8; None for UTF-8 and for bytes.

    Bytes 0x80 to 0x9f are signs such as the euro in cp1252 and nothing a person writes in latin-1.

    Args:
        path: The file.
    """
    with open(path, "rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    try:
        with open(path, encoding=UTF_8) as text:
            while text.read(CHARACTERS):
                pass
        return None
    except UnicodeDecodeError:
        pass
    seen: set[int] = set()
    with open(path, "rb") as file:
        while part := file.read(CHARACTERS):
            seen |= {*part}
    if seen.isdisjoint(range(0x80, 0xA0)):
        return "latin-1" if 0 not in seen else None
    try:
        bytes(seen).decode("cp1252")
    except UnicodeDecodeError:
        return None
    return "cp1252" if 0 not in seen else None


def explain_encoding(path: Path, tried: str, error: UnicodeError) -> str:
    """Explain that a file has another encoding than it was read with, and how to name it."""
    name = "UTF-8" if tried == UTF_8 else tried
    byte = f"byte {error.object[error.start]:#04x}" if isinstance(error, UnicodeDecodeError) else ""
    return (
        f"{path} is not written in {name} ({byte or reason(error)} cannot be read); name its "
        "encoding, such as --encoding latin-1, cp1252 or utf-16"
    )
