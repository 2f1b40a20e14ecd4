"""Rows of a table that are given one by one, as names and cells."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from hma.data.labels import label_text
from hma.data.table.files import Frame, TableRows, first_cells
from hma.extras import needed


class GivenTable(TableRows):
    """Rows without labels; their cells are read as those of a CSV file are.

    Args:
        name: Short name.
        rows: Column -> cell of each row; one that a row lacks is missing.
    """

    def __init__(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self.name = name
        self.columns = tuple(dict.fromkeys(column for row in rows for column in row))
        self.rows = [{column: label_text(row.get(column)) for column in self.columns}
                     for row in rows]  # fmt: skip
        self.labels = None
        self.target = ()

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def frame(self) -> Frame:
        """All rows, as text."""
        pandas = needed("pandas", "a table")
        cells = {name: [row[name] for row in self.rows] for name in self.columns}
        made = {name: pandas.array(column, dtype="str") for name, column in cells.items()}
        return pandas.DataFrame(made, index=range(len(self.rows)))

    def chunks(self, rows: int) -> Iterator[Frame]:
        """Yield all rows in order, ``rows`` at a time."""
        for first in range(0, len(self.rows), rows):
            yield self.frame.iloc[first : first + rows].reset_index(drop=True)

    def describe(self, place: int) -> str:
        """Return the first few cells."""
        return first_cells(self.rows[place])

    def fingerprint(self) -> str:
        """Return the SHA-256 of the rows."""
        return hashlib.sha256(json.dumps(self.rows).encode()).hexdigest()
