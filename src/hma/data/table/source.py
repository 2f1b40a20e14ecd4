"""Tables: CSV and Parquet files, and rows given one by one."""

import hashlib
import json
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from hma.data.labels import CLASSES, LabelKind, expect_present, finite_number, label_text, listed
from hma.data.source import Source, codec, explain_encoding
from hma.data.table.columns import Frame, cells
from hma.data.table.frames import simplify
from hma.errors import UserError, reason
from hma.extras import needed
from hma.io.files import file_sha256
from hma.options.preparation import Kind

CHUNK = 16384
SHOWN_COLUMNS = 3
CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")

MOST_UNKNOWN = 100
"""Columns that are named as ignored; a table with more of them is another table."""
MOST_CELLS = 2**20
"""Rows times columns of a table of several rows."""


class TableSource(Source):
    """A source of kind "table"."""

    kind: ClassVar[Kind] = "table"
    columns: tuple[str, ...]
    """Names of the columns, without those of the labels."""
    target: tuple[str, ...]
    """Names of the columns that hold the labels."""
    ignored: tuple[str, ...] = ()
    """Names of columns that were given and left out."""
    frame: Frame
    """All rows, labels included; kept in memory once read."""

    def rows_at(self, places: Sequence[int]) -> Frame:
        """Return the rows at ``places``, in that order."""
        return self.frame.iloc[list(places)]

    def expect_columns(self, option: str, names: Sequence[str]) -> None:
        """Raise unless all of ``names``, given as ``option``, are columns besides the labels."""
        for name in names:
            if name in self.target:
                raise UserError(f"{option} names the target {name!r}; name another column")
            if name not in self.columns:
                raise UserError(f"{option}: {self.name} {_explain_missing(name, self.columns)}")

    def load(self) -> None:
        """Read the whole table into memory."""
        _ = self.frame

    def chunks(self, rows: int) -> Iterator[Frame]:
        """Yield all rows in order, ``rows`` at a time."""
        for first in range(0, len(self), rows):
            yield self.frame.iloc[first : first + rows].reset_index(drop=True)

    def chunk_labels(self, chunk: Frame, first: int = 0) -> list[Any] | None:
        """Return the raw labels of a chunk that begins with row ``first``, if there are any."""
        if not self.target:
            return None
        columns = [[label_text(cell) for cell in cells(chunk[name])] for name in self.target]
        labels = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        missing = self.label_kind.is_missing
        places = [first + place for place, label in enumerate(labels) if missing(label)]
        if not self.skip_missing_labels:
            expect_present(places, first + len(labels), self.labels_from)
        return labels


class TableFile(TableSource):
    """A CSV or Parquet file.

    Cells of a CSV stay text until a preparation, fitted on the whole training part, says which
    columns are numbers: how a cell is read never depends on the chunk it came in.

    Args:
        path: The file; ``.gz`` is read too.
        target: Columns that hold the labels; none where there are none, or none are wanted.
        label_kind: What the labels are.
        encoding: How the characters of a CSV are written; UTF-8 if not given.
    """

    def __init__(
        self,
        path: Path,
        target: Sequence[str] = (),
        *,
        label_kind: LabelKind = CLASSES,
        encoding: str | None = None,
    ) -> None:
        self.path = path
        self.encoding = codec(encoding)
        self.name = path.name
        self.target = tuple(target)
        self.label_kind = label_kind
        self.label_names = self.target
        names = self._names = self._header()
        twice = [name for name in self.target if self.target.count(name) > 1]
        if twice:
            raise UserError(f"target names {twice[0]!r} more than once; name each column once")
        for name in self.target:
            if name not in names:
                raise UserError(f"{path} {_explain_missing(name, names)}")
        self.columns = tuple(name for name in names if name not in self.target)

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
        parts = list(self.chunks(CHUNK)) or [pandas.DataFrame(columns=self._names, dtype="str")]
        return pandas.concat(parts, ignore_index=True)

    @cached_property
    def labels(self) -> Sequence[Any] | None:  # type: ignore[override]
        """The target columns as text."""
        if not self.target:
            return None
        labels: list[Any] = []
        held = "frame" in self.__dict__
        for chunk in [self.frame] if held else self.chunks(CHUNK):
            labels += self.chunk_labels(chunk, len(labels)) or []
        if not labels:
            raise UserError(
                f"{self.path} has names of columns ({listed(self._names, 5)}) and no rows; "
                "add rows below them"
            )
        return labels

    @property
    def labels_from(self) -> str:
        """The columns and the file."""
        several = "column" if len(self.target) == 1 else "columns"
        return f"{several} {listed(self.target)} of {self.name}"

    def chunks(self, rows: int) -> Iterator[Frame]:
        """Yield all rows in order, ``rows`` at a time, keeping none."""
        reader = self._parquet(rows) if is_parquet(self.path) else self._csv_chunks(rows)
        while True:
            with self._readable():
                chunk = next(reader, None)
            if chunk is None:
                return
            yield chunk

    def _parquet(self, rows: int) -> Iterator[Frame]:
        with needed("pyarrow.parquet", "reading Parquet").ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=rows):
                chunk = simplify(batch.to_pandas(), self.target)
                if lost := {*self.columns, *self.target} - set(chunk):
                    raise ValueError(f"its rows lack {listed(sorted(lost))} of its header")
                yield chunk

    def _csv_chunks(self, rows: int) -> Iterator[Frame]:
        with self._csv(chunksize=rows) as reader:
            for chunk in reader:
                yield chunk.reset_index(drop=True)

    def _header(self) -> list[str]:
        with self._readable():
            if is_parquet(self.path):
                parquet = needed("pyarrow.parquet", "reading Parquet")
                with parquet.ParquetFile(self.path) as file:
                    frame = file.schema_arrow.empty_table().to_pandas()
            else:
                frame = self._csv(nrows=0)
        names = [str(name) for name in frame.columns]
        if not names:
            raise UserError(f"{self.path} has no columns; give a table with a line of names")
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UserError(f"{self.path} has the column {twice[0]!r} twice; rename one of them")
        return names

    def _csv(self, **how_much: int) -> Any:
        return needed("pandas", "reading a CSV file").read_csv(
            self.path,
            dtype=str,
            sep=self._separator,
            index_col=False,
            skipinitialspace=True,
            encoding=self.encoding,
            **how_much,
        )

    @cached_property
    def _separator(self) -> str:
        """The separator: a comma, unless the name or the first line say otherwise."""
        if ".tsv" in self.path.name.lower():
            return "\t"
        if self.path.suffix.lower() == ".gz":
            return ","
        with open(self.path, encoding=self.encoding) as file:
            header = file.readline()
        return next((mark for mark in (",", ";", "\t") if mark in header), ",")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn what pandas and pyarrow say of a bad file into a message that names the file."""
        try:
            with warnings.catch_warnings():
                # rows longer than the header would lose their last cells
                warnings.filterwarnings("error", ".*loss of data.*")
                yield
        except UnicodeError as error:
            raise UserError(explain_encoding(self.path, self.encoding, error)) from error
        except UserError:
            raise
        except Exception as error:  # a damaged file fails in many ways
            raise UserError(f"{self.path} cannot be read as a table: {reason(error)}") from error

    def rows_at(self, places: Sequence[int]) -> Frame:
        """Return the rows at ``places``; nothing else of the file is kept in memory for them."""
        if "frame" in self.__dict__ or not places:
            return super().rows_at(places)
        wanted, first, parts = sorted(set(places)), 0, []
        for chunk in self.chunks(CHUNK):
            here = [place for place in wanted if first <= place < first + len(chunk)]
            parts.append(chunk.iloc[[place - first for place in here]])
            first += len(chunk)
            if first > wanted[-1]:
                break
        pandas = needed("pandas", "reading a table")
        return pandas.concat(parts, ignore_index=True).iloc[[wanted.index(p) for p in places]]

    def describe(self, place: int) -> str:
        """Return the row number and the first few cells."""
        return self.describe_all([place])[0]

    def describe_all(self, places: Sequence[int]) -> list[str]:
        """Return the same for several rows, reading the file once."""
        if not places:
            return []
        rows = self.rows_at(places)[list(self.columns)].to_dict("records")
        return [describe_row(place, row) for place, row in zip(places, rows, strict=True)]

    def fingerprint(self) -> str:
        """Return the SHA-256 of the file."""
        return file_sha256(self.path)


def is_table(path: Path) -> bool:
    """Tell whether a file is a table, by its name."""
    return path.name.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS))


def is_parquet(path: Path) -> bool:
    """Tell whether a file is a Parquet file, by its name."""
    return path.name.lower().endswith(PARQUET_ENDINGS)


def describe_row(place: int, row: dict[str, Any]) -> str:
    """Write the number and the first cells of a row.

    Example:
        >>> describe_row(7, {"age": 31.0, "city": "Oslo"})
        'row 7: age=31, city=Oslo'
    """
    return f"row {place}: {show_cells(row)}"


def show_cells(row: Mapping[str, Any]) -> str:
    """Write the first cells of a row, without its number."""
    shown = list(row.items())[:SHOWN_COLUMNS]
    cells = ", ".join(f"{name}={label_text(value) or 'missing'}" for name, value in shown)
    return f"{cells}{', ...' if len(row) > SHOWN_COLUMNS else ''}"


def _explain_missing(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    if any(finite_number(each) is not None for each in names):
        guess += "; is its first line a row? Then put a line of names above it"
    return f"has no column {name!r}{guess}; it has {listed(names, 30)}"


class GivenTable(TableSource):
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

    def describe(self, place: int) -> str:
        """Return the first few cells."""
        return show_cells(self.rows[place])

    def fingerprint(self) -> str:
        """Return the SHA-256 of the rows."""
        return hashlib.sha256(json.dumps(self.rows).encode()).hexdigest()
