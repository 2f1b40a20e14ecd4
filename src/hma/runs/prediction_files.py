"""Files of predictions, written row by row: CSV, or Parquet where the name says so."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from hma.extras import needed

ENDINGS = (".csv", ".parquet")
ROW_GROUP = 16384
"""Rows that Parquet gets at a time."""

Content = Literal["text", "place", "share", "number"]
"""What a column holds: 'share' is a probability, 'number' a value of any size."""
Write = Callable[[Sequence[Sequence[Any]]], None]
FORMATS: dict[Content, str] = {"text": "", "place": "", "share": ".6f", "number": ".9g"}


@contextmanager
def prediction_file(path: Path, columns: Mapping[str, Content]) -> Iterator[Write]:
    """Yield a function that appends rows, one value for each of ``columns``."""
    opened = _parquet if path.suffix.lower() == ".parquet" else _csv
    with opened(path, columns) as write:
        yield write


@contextmanager
def _csv(path: Path, columns: Mapping[str, Content]) -> Iterator[Write]:
    formats = [FORMATS[content] for content in columns.values()]
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow(columns)

        def write(rows: Sequence[Sequence[Any]]) -> None:
            for row in rows:
                writer.writerow([format(v, how) for v, how in zip(row, formats, strict=True)])

        yield write


@contextmanager
def _parquet(path: Path, columns: Mapping[str, Content]) -> Iterator[Write]:
    arrow, parquet = needed("pyarrow", "writing Parquet"), needed("pyarrow.parquet", "writing it")
    types = {"text": arrow.string(), "place": arrow.int64(), "share": arrow.float64()}
    fields = [(name, types.get(content, arrow.float64())) for name, content in columns.items()]
    schema = arrow.schema(fields)
    waiting: list[Sequence[Any]] = []
    with parquet.ParquetWriter(path, schema) as writer:

        def flush() -> None:
            values = zip(*waiting, strict=True) if waiting else ([] for _ in fields)
            arrays = [arrow.array(v, t) for v, (_, t) in zip(values, fields, strict=True)]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
            waiting.clear()

        def write(rows: Sequence[Sequence[Any]]) -> None:
            waiting.extend(rows)
            if len(waiting) >= ROW_GROUP:
                flush()

        yield write
        flush()
