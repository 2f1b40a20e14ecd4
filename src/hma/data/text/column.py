"""Texts in a column of a CSV or Parquet file."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Self

from hma.data.table.columns import texts
from hma.data.table.files import CHUNK, TableFile
from hma.data.text.files import Line, TextRows, shortened


class TextColumn(TextRows):
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
        """Return the texts, read in one go."""
        if not places:
            return []
        return [shortened(text) for text in texts(self.table.rows_at(places)[self.column])]

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file."""
        return self.table.fingerprint()
