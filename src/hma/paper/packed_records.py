"""The records of a table in two files: a line of JSON for each cell, and the epochs of all.

``T6.jsonl`` has lines of two kinds. ``{"shared": HASH, "value": ...}`` is a part that many records
have in common, such as a task or a recipe; ``{"cell": "BUDGET/TASK/METHOD/SEED", "record": ...}``
is a record, with hashes in place of these parts, sorted by cell. ``T6.curves.parquet`` has a row
for each epoch of each record: numbers of a text take twice the room, and do not compress.

What was packed reads back as the very same JSON values, floats to the last bit.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hma.extras import needed
from hma.io.files import FileError, MissingFileError, atomic_write, expect_regular
from hma.io.json_files import RESTORE, parse_json

LINES, CURVES = ".jsonl", ".curves.parquet"
SHARED = (
    ("setup", "task"),
    ("setup", "method"),
    ("setup", "recipe"),
    ("resolved",),
    ("versions",),
    ("measures", "answers", "*", "labels"),
)
"""Parts of a record that are kept once; ``*`` is any name."""
HASH_DIGITS = 16
CELL, EPOCH, SECONDS = "cell", "epoch", "seconds"
"""Columns that curves have beside the numbers of an epoch."""
FIRST = (CELL, EPOCH, "train_loss", "lr", SECONDS)
"""How the columns of curves begin; the others follow by name."""
INSIDE = "/"
"""Between the names of nested numbers, as in ``validation/alone/accuracy``."""
Values = dict[str, Any]
Columns = dict[str, list[Any]]


class PackedRecords:
    """The packed records of a table; lines are parse_json when their cell is asked for.

    A file that another process replaces is read again, so a reader and ``hma results pack`` may
    work on a folder at the same time.

    Args:
        folder: The folder of results.
        table: Key of the table.
    """

    def __init__(self, folder: Path, table: str) -> None:
        self.path = folder / f"{table}{LINES}"
        self.curves_path = folder / f"{table}{CURVES}"
        self._stamp: tuple[int, ...] | None = None
        self._lines: dict[str, tuple[int, bytes]] = {}
        self._shared: dict[str, bytes] = {}
        self._curves: _Curves | None = None

    def cells(self) -> frozenset[str]:
        """Return the cells that have a line, as ``BUDGET/TASK/METHOD/SEED``."""
        self._refresh()
        return frozenset(self._lines)

    def __contains__(self, cell: str) -> bool:
        self._refresh()
        return cell in self._lines

    def values(self, cell: str) -> Values | None:
        """Return the record of a cell in JSON values; None where it has no line."""
        self._refresh()
        if cell not in self._lines:
            return None
        number, line = self._lines[cell]
        try:
            record: Values = parse_json(line)["record"]
            for holder, name in _places(record, SHARED):
                holder[name] = self._value(holder[name])
            return self._with_epochs(cell, record)
        except FileError:  # of the curves
            raise
        except (KeyError, TypeError, ValueError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise self._damaged(f"line {number}: {why}") from error

    def write(self, records: Mapping[str, Values]) -> None:
        """Add records to the files; a kill at any moment leaves every record readable.

        Curves come first: they hold all that lines of before and after speak of.

        Args:
            records: Cell, as ``BUDGET/TASK/METHOD/SEED``, to JSON values.
        """
        self._refresh()
        lines = {cell: line for cell, (_, line) in self._lines.items()}
        shared = dict(self._shared)
        curves = {cell: columns for cell in lines if (columns := self._columns(cell)) is not None}
        for cell, record in records.items():
            packed, columns = _without_epochs(record)
            for holder, name in _places(packed, SHARED):
                text = _line(holder[name])
                holder[name] = _hash(text)
                shared[holder[name]] = text
            if columns is not None:
                order = _line(packed["epochs"]["columns"])
                packed["epochs"]["columns"] = _hash(order)
                shared[_hash(order)] = order
                curves[cell] = columns
            lines[cell] = _line({CELL: cell, "record": packed})
        cells = sorted(lines, key=_order)
        if curves:
            _write_curves(
                self.curves_path, {cell: curves[cell] for cell in cells if cell in curves}
            )
        with atomic_write(self.path) as temporary, open(temporary, "wb") as file:
            for name in sorted(shared):
                file.write(b'{"shared":"%s","value":%s}\n' % (name.encode(), shared[name]))
            file.writelines(lines[cell] + b"\n" for cell in cells)

    def _refresh(self) -> None:
        """Read the lines if the file is another than before; curves follow when they are asked."""
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            stamp = None
        else:
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        self._lines, self._shared, self._curves = {}, {}, None
        if stamp is not None:
            self._read_lines()
        self._stamp = stamp

    def _read_lines(self) -> None:
        expect_regular(self.path)
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise FileError(
                f"{self.path} cannot be read: {error.strerror or error}; {RESTORE}"
            ) from error
        if lines.pop():
            raise self._damaged("it ends in the middle of a line")
        for number, line in enumerate(lines, start=1):
            kind, _, rest = line.partition(b':"')
            name, _, value = rest.partition(b'"')
            text = name.decode(errors="replace")
            if kind == b'{"shared"' and value.startswith(b',"value":'):
                self._shared[text] = value[len(b',"value":') : -1]
            elif kind != b'{"cell"':
                raise self._damaged(f"line {number} is neither of a cell nor shared")
            elif text in self._lines:
                raise self._damaged(f"lines {self._lines[text][0]} and {number} are both of {text}")
            else:
                self._lines[text] = number, line

    def _value(self, name: str) -> Any:
        """Return a shared part, a copy for each record."""
        if name not in self._shared:
            raise ValueError(f"nothing is shared as {name!r}")
        return parse_json(self._shared[name])

    def _columns(self, cell: str) -> Columns | None:
        """Return the curves of a cell, if its record has them beside its line."""
        number, line = self._lines[cell]
        epochs = parse_json(line)["record"]["epochs"]
        if not isinstance(epochs, dict):
            return None
        if self._curves is None:
            self._curves = _Curves(self.curves_path)
        columns = self._curves.of(cell)
        if len(columns[EPOCH]) != epochs["rows"]:
            raise FileError(
                f"{self.curves_path} is damaged: it has {len(columns[EPOCH])} epochs of {cell}, "
                f"line {number} of {self.path} says {epochs['rows']}; {RESTORE}"
            )
        return columns

    def _with_epochs(self, cell: str, record: Values) -> Values:
        columns = self._columns(cell)
        if columns is None:
            return record
        order = self._value(record["epochs"]["columns"])
        record["epochs"] = _epochs(columns, order)
        if record["epoch_seconds"] == SECONDS:
            record["epoch_seconds"] = columns[SECONDS]
        return record

    def _damaged(self, why: str) -> FileError:
        return FileError(f"{self.path} is damaged: {why}; {RESTORE}")


class _Curves:
    """The epochs of a table's records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            expect_regular(path)
            self._table = needed("pyarrow.parquet", "reading records").read_table(path)
            names = self._table[CELL].to_pylist()
        except MissingFileError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise FileError(f"{path} is damaged: {error}; {RESTORE}") from error
        self._places: dict[str, tuple[int, int]] = {}
        for place, name in enumerate(names):
            start, _ = self._places.get(name, (place, 0))
            self._places[name] = start, place + 1 - start

    def of(self, cell: str) -> Columns:
        """Return the columns of a cell's epochs: None where a number is absent, NaN for null."""
        start, count = self._places.get(cell, (0, 0))
        columns: Columns = self._table.slice(start, count).drop_columns([CELL]).to_pydict()
        return columns


def _write_curves(path: Path, curves: Mapping[str, Columns]) -> None:
    """Write the epochs of records, in the order given; the same epochs make the same file."""
    arrow = needed("pyarrow", "packing records")
    parquet = needed("pyarrow.parquet", "packing records")
    found = {name for columns in curves.values() for name in columns}
    names = [n for n in FIRST[1:] if n in found] + sorted(found - set(FIRST))
    cells = [cell for cell, columns in curves.items() for _ in columns[EPOCH]]
    arrays = {CELL: arrow.array(cells, arrow.string()).dictionary_encode()}
    for name in names:
        kind = arrow.int64() if name == EPOCH else arrow.float64()
        values = [
            value
            for columns in curves.values()
            for value in columns.get(name) or [None] * len(columns[EPOCH])
        ]
        arrays[name] = arrow.array(values, kind, from_pandas=False)
    few = [CELL, EPOCH, "lr"]  # different values, which a dictionary of them serves best
    with atomic_write(path) as temporary:
        parquet.write_table(
            arrow.table(arrays),
            temporary,
            compression="zstd",
            compression_level=19,
            use_dictionary=few,
            column_encoding={name: "BYTE_STREAM_SPLIT" for name in names if name not in few},
        )


def _without_epochs(record: Values) -> tuple[Values, Columns | None]:
    """Return a copy of a record that says where its epochs are, and these as columns.

    Epochs that are not plain numbers under names, as those of every training here, stay.
    """
    packed: Values = json.loads(json.dumps(record))
    epochs, seconds = packed["epochs"], packed.get("epoch_seconds")
    flat = [dict(_flat(epoch)) for epoch in epochs]
    order = list(dict.fromkeys(n for one in sorted(flat, key=len, reverse=True) for n in one))
    columns: Columns = {
        name: [math.nan if one.get(name, 0) is None else one.get(name) for one in flat]
        for name in order
    }
    kinds = {name: {type(one[name]) for one in flat if name in one} for name in order}
    numbers = all(kinds[name] <= {float, type(None)} for name in order if name != EPOCH)
    if kinds.get(EPOCH) != {int} or not numbers or {CELL, SECONDS} & kinds.keys():
        return packed, None
    if None in columns[EPOCH] or json.dumps(_epochs(columns, order)) != json.dumps(epochs):
        return packed, None
    packed["epochs"] = {"rows": len(flat), "columns": order}
    if isinstance(seconds, list) and [type(one) for one in seconds] == [float] * len(flat):
        packed["epoch_seconds"] = SECONDS
        columns[SECONDS] = seconds
    return packed, columns


def _epochs(columns: Columns, order: Iterable[str]) -> list[Values]:
    """Return epochs as a record has them."""
    paths = [(columns[name], name.split(INSIDE)) for name in order]
    epochs: list[Values] = [{} for _ in columns[EPOCH]]
    for place, epoch in enumerate(epochs):
        for values, (*outer, name) in paths:
            holder = epoch.setdefault(outer[0], {}) if outer else epoch  # there, if empty
            if (value := values[place]) is None:
                continue
            for inner in outer[1:]:
                holder = holder.setdefault(inner, {})
            holder[name] = None if isinstance(value, float) and math.isnan(value) else value
    return epochs


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers of an epoch with the names they are under."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}{INSIDE}")
        else:
            yield before + name, value


def _places(values: Values, paths: Iterable[tuple[str, ...]]) -> Iterator[tuple[Values, str]]:
    """Yield where the parts of a record are, each as its holder and its name there."""
    for first, *inner in paths:
        for name in values.keys() if first == "*" else values.keys() & {first}:
            if not inner:
                yield values, name
            elif isinstance(values[name], dict):
                yield from _places(values[name], [tuple(inner)])


def _order(cell: str) -> tuple[str, int]:
    """Sort cells by budget, task, method and seed, the seed as a number."""
    place, _, seed = cell.rpartition("/")
    return place, int(seed)


def _line(values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:HASH_DIGITS]
