"""Tables on disk: CSV and Parquet files, read whole for training and in chunks for streams."""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from hma.data.labels import expect_present, label_text, listed
from hma.data.source import Source
from hma.data.task import Kind
from hma.errors import UserError
from hma.extras import needed

CHUNK = 16384
SHOWN_COLUMNS = 3
CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")

Frame = Any
"""A ``pandas.DataFrame``; pandas carries no types."""


class TableRows(Source, Protocol):
    """A source of kind "table"."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, without the target."""
        ...

    @property
    def target(self) -> str | None:
        """Name of the column that holds the labels."""
        ...

    @property
    def frame(self) -> Frame:
        """All rows, target included; kept in memory once read."""
        ...

    def chunks(self, rows: int) -> Iterator[Frame]:
        """Yield all rows in order, ``rows`` at a time, keeping none."""
        ...


class TableFile:
    """A CSV or Parquet file.

    Cells of a CSV stay text until a preparation, fitted on the whole training part, says which
    columns are numbers: how a cell is read never depends on the chunk it came in.

    Args:
        path: The file; ``.gz`` is read too.
        target: Column that holds the labels; None where there are none, or none are wanted.
    """

    kind: Kind = "table"
    skipped: Sequence[str] = ()

    def __init__(self, path: Path, target: str | None = None) -> None:
        self.path = path
        self.name = path.name
        self.target = target
        names = self._header()
        if target is not None and target not in names:
            near = get_close_matches(target, names, n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{path} has no column {target!r}{guess}; it has {listed(names, 30)}")
        self.columns = tuple(name for name in names if name != target)

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def _rows(self) -> int:
        if "frame" in self.__dict__:
            return len(self.frame)
        return sum(len(chunk) for chunk in self.chunks(CHUNK))

    @cached_property
    def frame(self) -> Frame:
        """All rows, kept in memory once read."""
        pandas = needed("pandas", "reading a table")
        return pandas.concat(list(self.chunks(CHUNK)), ignore_index=True)

    @property
    def labels(self) -> Sequence[str] | None:
        """The target column as text."""
        return None if self.target is None else self._labels

    @cached_property
    def _labels(self) -> list[str]:
        held = "frame" in self.__dict__
        found: list[str | None] = []
        for chunk in [self.frame] if held else self.chunks(CHUNK):
            found += [label_text(value) for value in cells(chunk[self.target])]
        return present(found, self)

    def chunks(self, rows: int) -> Iterator[Frame]:
        """Yield all rows in order, ``rows`` at a time."""
        reader = self._parquet(rows) if is_parquet(self.path) else self._csv_chunks(rows)
        while True:
            with _readable(self.path):
                chunk = next(reader, None)
            if chunk is None:
                return
            yield chunk

    def _parquet(self, rows: int) -> Iterator[Frame]:
        with needed("pyarrow.parquet", "reading Parquet").ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=rows):
                yield _plain(batch.to_pandas(), self.target)

    def _csv_chunks(self, rows: int) -> Iterator[Frame]:
        with self._csv(chunksize=rows) as reader:
            for chunk in reader:
                yield chunk.reset_index(drop=True)

    def _header(self) -> list[str]:
        with _readable(self.path):
            if is_parquet(self.path):
                parquet = needed("pyarrow.parquet", "reading Parquet")
                with parquet.ParquetFile(self.path) as file:
                    frame = file.schema_arrow.empty_table().to_pandas()
            else:
                frame = self._csv(nrows=0)
        names = [str(name) for name in frame.columns]
        if not names:
            raise UserError(f"{self.path} has no columns; give a table with a line of names")
        return names

    def _csv(self, **how_much: int) -> Any:
        return needed("pandas", "reading a CSV file").read_csv(
            self.path,
            dtype=str,
            sep=_separator(self.path),
            index_col=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
            **how_much,
        )

    def describe(self, place: int) -> str:
        """Return the row number and the first few cells."""
        row = self.frame.iloc[place]
        return described(place, {name: row[name] for name in self.columns})

    def thumbnail(self, place: int) -> None:
        """Return None: a row of a table has no picture."""

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file."""
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def is_table(path: Path) -> bool:
    """Tell whether the name of a file is that of a table."""
    return path.name.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS))


def is_parquet(path: Path) -> bool:
    """Tell whether the name of a file is that of a Parquet file."""
    return path.name.lower().endswith(PARQUET_ENDINGS)


def described(place: int, row: dict[str, Any]) -> str:
    """Write the first cells of a row out.

    Example:
        >>> described(7, {"age": 31.0, "city": "Oslo"})
        'row 7: age=31, city=Oslo'
    """
    shown = list(row.items())[:SHOWN_COLUMNS]
    cells = ", ".join(f"{name}={label_text(value) or 'missing'}" for name, value in shown)
    return f"row {place}: {cells}{', ...' if len(row) > SHOWN_COLUMNS else ''}"


def chunk_labels(table: TableRows, chunk: Frame, first: int) -> list[str] | None:
    """Return the labels of a chunk that begins with row ``first``; None without a target."""
    if table.target is None:
        return None
    return present([label_text(value) for value in cells(chunk[table.target])], table, first)


def present(labels: Sequence[str | None], table: TableRows, first: int = 0) -> list[str]:
    """Return the labels if none is missing."""
    missing = [first + place for place, label in enumerate(labels) if label is None]
    expect_present(missing, first + len(labels), f"column {table.target!r} of {table.name}")
    return [label for label in labels if label is not None]


def cells(column: Any) -> list[Any]:
    """Return the values of a column, None where missing."""
    return [None if gone else value for value, gone in zip(column, column.isna(), strict=True)]


def _separator(path: Path) -> str:
    """Return the separator: a comma, unless the name or the first line say otherwise."""
    if ".tsv" in path.name.lower():
        return "\t"
    if path.suffix.lower() == ".gz":
        return ","
    with open(path, encoding="utf-8-sig") as file:
        header = file.readline()
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


def _plain(frame: Frame, target: str | None) -> Frame:
    """Reduce the many types of Parquet to two: float64, and text with NaN where missing."""
    pandas = needed("pandas", "reading Parquet")
    types = pandas.api.types
    columns = {}
    for name, column in frame.items():
        number = types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype)
        if number and str(name) != target:
            values = column.to_numpy("float64", na_value=float("nan"))
        elif types.is_datetime64_any_dtype(column.dtype):
            start = pandas.Timestamp(0, tz=column.dt.tz)
            values = (column - start).dt.total_seconds().to_numpy()
        else:
            values = pandas.array([label_text(cell) for cell in cells(column)], dtype="str")
        columns[str(name)] = values
    return pandas.DataFrame(columns)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what pandas and pyarrow say of a bad file into a message that names the file."""
    try:
        with warnings.catch_warnings():
            # rows longer than the header would lose their last cells
            warnings.filterwarnings("error", ".*loss of data.*")
            yield
    except UserError:
        raise
    except (OSError, EOFError, ValueError, Warning) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be read as a table: {reason}") from error
