"""Tables as numbers: columns standardised or one-hot, as the training rows say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray

from hma.data.labels import listed
from hma.data.options import PreparationOptions
from hma.data.preparation import Preparation
from hma.data.source import Source, expect_kind
from hma.data.table.columns import (
    CategoryColumn,
    Column,
    EmptyColumn,
    NumberColumn,
    column_from_json,
    fit_column,
)
from hma.data.table.files import CHUNK, Frame, TableRows
from hma.data.task import Batch, InMemory
from hma.errors import UserError
from hma.json_files import Default
from hma.targets import Target


@dataclass(frozen=True)
class TablePreparation(Preparation):
    """What to do with each column.

    Args:
        label_columns: Columns of the labels, ignored where a table to predict still has them.
        columns: The columns in the order of the training table.
    """

    label_columns: tuple[str, ...]
    columns: tuple[Column, ...]

    kind = "table"
    unlabelled = "name the column of the labels with --target"
    fields_in_json: ClassVar = {
        "label_columns": Default(list[str], []),
        "columns": list[dict[str, Any]],
    }

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values in a row."""
        return (sum(column.width for column in self.columns),)

    def split(self, source: Source, places: Sequence[int] | None = None) -> InMemory:
        """Return rows of a table, in memory."""
        table = self._checked(source)
        frame = table.frame if places is None else table.rows_at(places)
        rows = np.arange(len(frame)) if places is None else np.asarray(places)
        x = torch.from_numpy(self.values(frame, rows))
        return InMemory(x, self.labels_of(source, places))

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the rows in order, reading the file as it goes."""
        table = self._checked(source)
        first = 0
        for frame in table.chunks(-(-CHUNK // batch_size) * batch_size):
            ids = torch.arange(first, first + len(frame))
            x = torch.from_numpy(self.values(frame, ids.numpy()))
            labels = table.chunk_labels(frame, first)
            y = self.target.unknown(len(ids)) if labels is None else self.encoded(labels, table)
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
        extra = [name for name in table.columns if name not in {*known, *self.label_columns}]
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
            "numbers": [c.name for c in self.columns if isinstance(c, NumberColumn)],
            "missing shown by a column of its own": [
                c.name for c in self.columns if isinstance(c, NumberColumn) and c.indicator
            ],
            "categories": {c.name: c.width for c in self.columns if isinstance(c, CategoryColumn)},
            "rare categories taken as unseen": {
                c.name: c.rare for c in self.columns if isinstance(c, CategoryColumn) and c.rare
            },
            "empty columns left out": [c.name for c in self.columns if isinstance(c, EmptyColumn)],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return what :meth:`to_json` wrote; ``target`` is how one column was written before."""
        if isinstance(values.get("target"), str):
            values = {"label_columns": [values["target"]], **values}
        return super().from_json(values)

    @classmethod
    def _revived(cls, name: str, value: Any) -> Any:
        if name == "columns":
            return tuple(column_from_json(column) for column in value)
        return super()._revived(name, value)

    @classmethod
    def fit(
        cls,
        source: Source,
        places: Sequence[int],
        classes: tuple[str, ...],
        target: Target,
        options: PreparationOptions,
    ) -> Self:
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
        preparation = cls(classes, table.target, columns, target=target)
        if preparation.shape == (0,):
            raise UserError(f"{table.name} has no column with values besides the target")
        return preparation
