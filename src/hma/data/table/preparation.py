"""Tables as numbers: columns standardised or one-hot, as the training rows say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from hma.data.labels import encode, listed
from hma.data.preparation import FORMAT, PreparationOptions, label_ids
from hma.data.source import Source, expect_kind
from hma.data.table.columns import Category, Column, Empty, Number, column_from_json, fit_column
from hma.data.table.files import CHUNK, Frame, TableRows, chunk_labels
from hma.data.task import Batch, InMemory, Kind
from hma.errors import UserError


@dataclass(frozen=True)
class TablePreparation:
    """What to do with each column.

    Args:
        classes: Names of the classes.
        target: Column of the labels, ignored where a table to predict still has it.
        columns: The columns in the order of the training table.
    """

    classes: tuple[str, ...]
    target: str | None
    columns: tuple[Column, ...]
    kind: Kind = "table"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values in a row."""
        return (sum(column.width for column in self.columns),)

    def split(self, source: Source, places: Sequence[int] | None = None) -> InMemory:
        """Return rows of a table, in memory."""
        table = self._checked(source)
        frame = table.frame if places is None else table.frame.iloc[list(places)]
        rows = np.arange(len(frame)) if places is None else np.asarray(places)
        x = torch.from_numpy(self.values(frame, rows))
        return InMemory(x, label_ids(source, self.classes, places))

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the rows in order, reading the file as it goes."""
        table = self._checked(source)
        first = 0
        for frame in table.chunks(-(-CHUNK // batch_size) * batch_size):
            ids = torch.arange(first, first + len(frame))
            x = torch.from_numpy(self.values(frame, ids.numpy()))
            labels = chunk_labels(table, frame, first)
            y = torch.full_like(ids, -1) if labels is None else encode(labels, self.classes)
            for part in torch.split(torch.arange(len(frame)), batch_size):
                yield Batch(x[part], y[part], ids[part])
            first += len(frame)

    def values(self, frame: Frame, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows of a frame as numbers, ``(N, F)``.

        Args:
            frame: The rows.
            rows: Their numbers in the table, for messages.
        """
        out = np.zeros((len(frame), self.shape[0]), dtype=np.float32)
        first = 0
        for column in self.columns:
            column.write(frame[column.name], out[:, first : first + column.width], rows)
            first += column.width
        return out

    def _checked(self, source: Source) -> TableRows:
        expect_kind(source, self.kind)
        table = cast("TableRows", source)
        known = [column.name for column in self.columns]
        missing = [name for name in known if name not in table.columns]
        extra = [name for name in table.columns if name not in {*known, self.target}]
        if missing or extra:
            lacks = f"lacks {listed(missing, 30)}" if missing else ""
            has = f"has {listed(extra, 30)} besides" if extra else ""
            raise UserError(
                f"{table.name} has other columns than the training table: it "
                f"{' and '.join(part for part in (lacks, has) if part)}; give the same columns"
            )
        return table

    def facts(self) -> dict[str, Any]:
        """Say what is done to which columns."""
        return {
            "numbers": [c.name for c in self.columns if isinstance(c, Number)],
            "missing shown by a column of its own": [
                c.name for c in self.columns if isinstance(c, Number) and c.indicator
            ],
            "categories": {c.name: c.width for c in self.columns if isinstance(c, Category)},
            "rare categories taken as unseen": {
                c.name: c.rare for c in self.columns if isinstance(c, Category) and c.rare
            },
            "empty columns left out": [c.name for c in self.columns if isinstance(c, Empty)],
        }

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        return {
            "kind": self.kind,
            "format": FORMAT,
            "classes": list(self.classes),
            "target": self.target,
            "columns": [column.to_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TablePreparation":
        """Return what :meth:`to_json` wrote."""
        columns = tuple(column_from_json(column) for column in values["columns"])
        return cls(tuple(values["classes"]), values["target"], columns)


def fit_table(
    source: Source, places: Sequence[int], classes: tuple[str, ...], options: PreparationOptions
) -> TablePreparation:
    """Learn from the rows at ``places`` what to do with each column."""
    table = cast("TableRows", source)
    unknown = [name for name in options.categorical if name not in table.columns]
    if unknown:
        raise UserError(
            f"categorical must name columns of {table.name}, got {listed(unknown)}; it has "
            f"{listed(table.columns, 30)}"
        )
    rows = np.asarray(places)
    frame = table.frame.iloc[rows]
    columns = tuple(fit_column(name, frame[name], rows, options) for name in table.columns)
    preparation = TablePreparation(classes, table.target, columns)
    if preparation.shape == (0,):
        raise UserError(f"{table.name} has no column with values besides the target")
    return preparation
