"""Rows of a table that are given one by one, as names and cells."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from hma.data.labels import label_text
from hma.data.table.files import Frame, TableRows, first_cells
from hma.errors import UserError
from hma.extras import needed

MOST_UNKNOWN = 100
"""Columns that are named as ignored; a table with more of them is another table."""
MOST_CELLS = 2**20
"""Rows times columns of a table of several rows."""


class GivenTable(TableRows):
    """Rows without labels; their cells are read as those of a CSV file are.

    Nothing is built for columns that are not known: they are named in ``ignored``.

    Args:
        name: Short name.
        rows: Column -> cell of each row; one that a row lacks is missing.
        known: Columns that the training table has.
    """

    def __init__(
        self, name: str, rows: Sequence[Mapping[str, Any]], known: Collection[str]
    ) -> None:
        self.name = name
        known = frozenset(known)
        given = dict.fromkeys(column for row in rows for column in row)
        self.columns = tuple(column for column in given if column in known)
        self.ignored = tuple(column for column in given if column not in known)
        if len(self.ignored) > MOST_UNKNOWN:
            raise UserError(
                f"{name} has {len(self.ignored)} columns that the training table does not have; "
                f"at most {MOST_UNKNOWN} are ignored: leave them out"
            )
        if len(rows) > 1 and len(rows) * len(self.columns) > MOST_CELLS:
            raise UserError(
                f"{name} has {len(rows)} rows of {len(self.columns)} columns; at most "
                f"{MOST_CELLS} cells are taken: give fewer rows at a time"
            )
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
