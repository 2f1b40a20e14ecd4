"""Tables as numbers: columns standardised or one-hot, as the training rows say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from hma.data.labels import listed
from hma.data.preparation import Preparation, Selection
from hma.data.source import Source
from hma.data.table.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    EmptyColumn,
    Frame,
    NumberColumn,
    column_from_json,
    fit_columns,
    width_of,
    write_columns,
)
from hma.data.table.source import CHUNK, TableSource
from hma.data.table.suspicious import suspicious
from hma.data.task import Batch, InMemory
from hma.errors import UserError
from hma.options.preparation import PreparationOptions
from hma.targets import Target


@dataclass(frozen=True)
class TablePreparation(Preparation):
    """What to do with each column.

    Args:
        label_columns: Columns of the labels, ignored where a table to predict still has them.
        columns: The columns in the order of the training table.
        dropped: Columns that were left out, and may be there or not.
    """

    label_columns: tuple[str, ...]
    columns: tuple[Column, ...]
    dropped: tuple[str, ...] = ()

    kind = "table"
    unlabelled = "name the column of the labels with --target"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values in a row."""
        return (width_of(self.columns),)

    def split(self, source: Source, places: Sequence[int] | None = None) -> InMemory:
        """Return rows of a table, in memory."""
        table = self._expect_fitting(source)
        frame = table.frame if places is None else table.rows_at(places)
        rows = np.arange(len(frame)) if places is None else np.asarray(places)
        x = torch.from_numpy(self.values(frame, rows))
        return InMemory(x, self.labels_of(source, places))

    def stream(self, source: Source, batch_size: int) -> Iterator[Batch]:
        """Yield the rows in order, reading the file as it goes."""
        table = self._expect_fitting(source)
        first = 0
        for frame in table.chunks(-(-CHUNK // batch_size) * batch_size):
            ids = torch.arange(first, first + len(frame))
            x = torch.from_numpy(self.values(frame, ids.numpy()))
            labels = table.chunk_labels(frame, first)
            y = self.target.unknown(len(ids)) if labels is None else self.encode(labels, table)
            for part in torch.split(torch.arange(len(frame)), batch_size):
                yield Batch(x[part], y[part], ids[part])
            first += len(frame)

    def values(self, frame: Frame, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows of a frame as numbers, ``(N, F)``.

        Args:
            frame: The rows.
            rows: Their numbers in the table, for messages.
        """
        out = np.zeros((len(frame), *self.shape), dtype=np.float32)
        write_columns(self.columns, frame, rows, out)
        return out

    def _expect_fitting(self, source: Source) -> TableSource:
        table = TableSource.expect(source)
        missing = [column.name for column in self.columns if column.name not in table.columns]
        if missing:
            extra = self._unknown(table)
            has = f" and has {listed(extra, 30)} besides" if extra else ""
            raise UserError(
                f"{table.name} has other columns than the training table: it lacks "
                f"{listed(missing, 30)}{has}; give the same columns"
            )
        return table

    @property
    def known_columns(self) -> frozenset[str]:
        """Names of all columns that the training table had."""
        names = (column.name for column in self.columns)
        return frozenset((*names, *self.label_columns, *self.dropped))

    def _unknown(self, table: TableSource) -> list[str]:
        known = self.known_columns
        return [name for name in (*table.columns, *table.ignored) if name not in known]

    def notes(self, source: Source) -> list[str]:
        """Say which columns are ignored because the training table had none of them."""
        extra = self._unknown(self._expect_fitting(source))
        if not extra:
            return []
        several = "columns" if len(extra) > 1 else "column"
        return [f"ignored {several} {listed(extra, 30)}, which the training table does not have"]

    def suspicions(self, train: Selection, validation: Selection) -> list[str]:
        """Return a line for each column that may not be what it is taken for."""
        return suspicious(self.columns, train, validation)

    def facts(self) -> dict[str, Any]:
        """Return what is done to which columns."""
        dates = {c.name: c.format for c in self.columns if isinstance(c, DateColumn)}
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
            **({"dates": dates} if dates else {}),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
        }

    @classmethod
    def _revive(cls, name: str, value: Any) -> Any:
        if name == "columns":
            return tuple(column_from_json(column) for column in value)
        return super()._revive(name, value)

    @classmethod
    def fit(
        cls, rows: Selection, classes: tuple[str, ...], target: Target, options: PreparationOptions
    ) -> Self:
        """Learn from training rows what to do with each column."""
        table = TableSource.expect(rows.source)
        table.expect_columns("categorical", options.categorical)
        table.expect_columns("drop", options.drop)
        places = np.asarray(rows.places)
        frame = table.frame.iloc[places]
        kept = [name for name in table.columns if name not in options.drop]
        columns = fit_columns(kept, frame, places, options)
        dropped = tuple(dict.fromkeys(options.drop))
        preparation = cls(classes, table.target, columns, dropped, target=target)
        if preparation.shape == (0,):
            raise UserError(f"{table.name} has no column with values besides the target")
        return preparation
