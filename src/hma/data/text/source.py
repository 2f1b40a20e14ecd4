"""Texts: a JSONL file, a column of a table, and texts given one by one."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from hma.data.labels import expect_present, label_text, listed
from hma.data.source import Source, codec, explain_encoding
from hma.data.table.columns import texts
from hma.data.table.source import CHUNK, TableFile
from hma.errors import UserError, reason
from hma.io.files import file_sha256
from hma.io.json_files import parse_json

SHOWN = 80


class Line(NamedTuple):
    """One line of the file."""

    text: str
    label: Any
    labelled: bool
    """Whether the line has a label at all, be it empty."""


class TextSource(Source):
    """A source of kind "text"."""

    kind = "text"
    has_labels: bool
    """Whether the first line has a label."""

    @property
    @abstractmethod
    def texts(self) -> list[str]:
        """Every text."""

    @abstractmethod
    def lines(self) -> Iterator[Line]:
        """Yield the lines in order, keeping none."""


class TextFile(TextSource):
    """A JSONL file, one text a line; blank lines do not count.

    Args:
        path: The file.
        encoding: How its characters are written; UTF-8 if not given.
    """

    end: int | None = None
    """How many lines count; None for all."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.name = path.name
        self.encoding = codec(encoding)
        first = next(self.lines(), None)
        if first is None:
            raise UserError(
                f'{path} is empty; give lines such as {{"text": "...", "label": "..."}}'
            )
        self.has_labels = first.labelled

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> list[Line]:
        return list(islice(self.lines(), self.end))

    def up_to(self, end: int) -> Self:
        """Return the first lines of the file; the others are not read."""
        part = copy(self)
        part.end = end
        for kept in ("_all", "labels"):
            part.__dict__.pop(kept, None)
        return part

    def without_labels(self) -> Self:
        """Return the lines as if none had a label."""
        part = super().without_labels()
        part.has_labels = False
        return part

    @property
    def texts(self) -> list[str]:
        """Every text; kept in memory once read."""
        return [line.text for line in self._all]

    @cached_property
    def labels(self) -> Sequence[Any] | None:  # type: ignore[override]
        """The label of each line; None where no line has one."""
        if not any(line.labelled for line in self._all):
            return None
        found = [line.label for line in self._all]
        return found if self.skip_missing_labels else expect_labels(found, str(self.path))

    def lines(self) -> Iterator[Line]:
        """Yield the lines in order, keeping none."""
        try:
            with open(self.path, encoding=self.encoding) as file:
                for number, text in enumerate(file, start=1):
                    if text.strip():
                        yield self._line(number, text)
        except UnicodeError as error:
            raise UserError(explain_encoding(self.path, self.encoding, error)) from error
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {reason(error)}") from error

    def _line(self, number: int, text: str) -> Line:
        try:
            values = parse_json(text.encode())
        except ValueError as error:
            raise UserError(f"line {number} of {self.path} is not JSON: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("text"), str):
            raise UserError(
                f'line {number} of {self.path} must be an object with a string "text"'
                f"{_explain_instead(values)}"
            )
        label = values.get("label")
        if isinstance(label, dict | list):
            raise UserError(
                f"the label in line {number} of {self.path} must be a string or a number, got "
                f"{label}"
            )
        return Line(values["text"], label_text(label), "label" in values)

    def describe(self, place: int) -> str:
        """Return the text itself, cut short."""
        return shorten(self._all[place].text)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file."""
        return file_sha256(self.path)


def shorten(text: str) -> str:
    """Return a text on one line, cut short."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def expect_labels(labels: Sequence[str | None], where: str, first: int = 0) -> Sequence[Any]:
    """Return the labels if none is missing."""
    missing = [first + place for place, label in enumerate(labels) if label is None]
    expect_present(missing, first + len(labels), where)
    return [label for label in labels if label is not None]


def _explain_instead(values: object) -> str:
    if not isinstance(values, dict):
        return f", got {type(values).__name__}"
    if "text" in values:
        return f", got {values['text']!r} as its text"
    near = get_close_matches("text", map(str, values), n=1)
    guess = f"; rename {near[0]!r}" if near else ""
    return f", got only {listed(list(values))}{guess}"


class TextColumn(TextSource):
    """A column of a table read as texts; the other columns but the labels are left out.

    A cell that is empty is an empty text.

    Args:
        table: The file, opened with its labels.
        column: Name of the column.
    """

    def __init__(self, table: TableFile, column: str) -> None:
        table.expect_columns("text", [column])
        self.table = table
        self.column = column
        self.name = table.name
        self.label_kind = table.label_kind
        self.label_names = table.label_names
        self.has_labels = bool(table.target)

    def __len__(self) -> int:
        return len(self.table)

    def load(self) -> None:
        """Read the whole table into memory."""
        self.table.load()

    @property
    def labels_from(self) -> str:
        """The columns and the file."""
        return self.table.labels_from

    @property
    def labels(self) -> Sequence[Any] | None:  # type: ignore[override]
        """The target columns as text."""
        return self.table.labels if self.has_labels else None

    @property
    def texts(self) -> list[str]:
        """Every text; kept in memory once read."""
        return texts(self.table.frame[self.column])

    def lines(self) -> Iterator[Line]:
        """Yield the rows in order, keeping none."""
        first = 0
        for chunk in self.table.chunks(CHUNK):
            labels = self.table.chunk_labels(chunk, first) if self.has_labels else None
            for place, text in enumerate(texts(chunk[self.column])):
                label = None if labels is None else labels[place]
                yield Line(text, label, labelled=self.has_labels)
            first += len(chunk)

    def without_labels(self) -> Self:
        """Return the texts alone."""
        part = copy(self)
        part.has_labels = False
        return part

    def describe(self, place: int) -> str:
        """Return the text itself, cut short."""
        return self.describe_all([place])[0]

    def describe_all(self, places: Sequence[int]) -> list[str]:
        """Return the texts, reading the file once."""
        if not places:
            return []
        return [shorten(text) for text in texts(self.table.rows_at(places)[self.column])]

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file."""
        return self.table.fingerprint()


class GivenTexts(TextSource):
    """Texts without labels.

    Args:
        name: Short name.
        texts: The texts.
    """

    has_labels = False

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        self.name = name
        self.labels = None
        self._texts = list(texts)

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def texts(self) -> list[str]:
        """Every text."""
        return self._texts

    def lines(self) -> Iterator[Line]:
        """Yield the texts in order."""
        for text in self._texts:
            yield Line(text, None, labelled=False)

    def describe(self, place: int) -> str:
        """Return the text itself, cut short."""
        return shorten(self._texts[place])

    def fingerprint(self) -> str:
        """Return the SHA-256 of the texts."""
        return hashlib.sha256(json.dumps(self._texts).encode()).hexdigest()
