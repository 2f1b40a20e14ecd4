"""Results on disk: one file for each finished cell until they are packed, all whole."""

import json
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from hma.errors import UserError
from hma.io.files import MissingFileError, atomic_write, hold_lock
from hma.io.json_files import read_json, write_json
from hma.io.tensor_files import read_tensors
from hma.paper.packed_records import PackedRecords
from hma.paper.step_costs import STEP_COSTS
from hma.paper.table import Cell, Table
from hma.training import Record
from hma.training.identity import differences

UNFINISHED = ".unfinished"
State = Literal["done", "failed", "missing"]


@dataclass(frozen=True)
class Failure:
    """Why a cell has no record.

    Args:
        error: The kind of error and its message, one line.
        traceback: Where it happened.
    """

    error: str
    traceback: str = ""


class Results:
    """A folder of results.

    A finished cell leaves its record under ``TABLE/BUDGET/TASK/METHOD/SEED.json``, beside it
    weights that are kept as ``SEED.safetensors`` and failures as ``SEED.failed.json``; what is not
    finished lies under ``.unfinished``. :meth:`pack` puts the records of a table into one file,
    see :mod:`hma.paper.packed_records`; a record is found in either place. Every file appears
    whole or not at all, so any number of runners may work on one folder.

    Args:
        folder: Where; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).expanduser()
        self._packed: dict[str, PackedRecords] = {}

    def path(self, cell: Cell) -> Path:
        """Return where the record of a cell is, or will be, until it is packed."""
        return self.folder / f"{cell.path}.json"

    def packed(self, table: str) -> PackedRecords:
        """Return the packed records of a table; no other table is read."""
        if table not in self._packed:
            self._packed[table] = PackedRecords(self.folder, table)
        return self._packed[table]

    def has_record(self, cell: Cell) -> bool:
        """Tell whether a cell is finished."""
        # the single file first: it goes only after its line is there
        return self.path(cell).exists() or cell.name in self.packed(cell.table)

    def weights_path(self, cell: Cell) -> Path:
        """Return where the weights of a cell are, if its row keeps them."""
        return self.folder / f"{cell.path}.safetensors"

    def failed_path(self, cell: Cell) -> Path:
        """Return where the failure of a cell is, or would be."""
        return self.folder / f"{cell.path}.failed.json"

    def work_folder(self, cell: Cell) -> Path:
        """Return where a cell is trained: checkpoints, log, weights."""
        return self.folder / UNFINISHED / cell.path

    def state(self, cell: Cell) -> State:
        """Return whether a cell is done, failed at the last try, or missing."""
        if self.has_record(cell):
            return "done"
        return "failed" if self.failed_path(cell).exists() else "missing"

    def record(self, table: Table, cell: Cell) -> Record:
        """Return the record of a cell; one made by another definition of the cell is refused."""
        found = self._found(cell)
        record = translate(found.record, table, cell)
        wanted = definition(table, cell)
        measured = {name: record.resolved.get(name) for name in wanted}
        measured |= {"seed": record.seed, "recipe": record.setup["recipe"]}
        wanted |= {"seed": cell.seed, "recipe": table.recipe(cell).to_json()}
        if differing := differences(measured, wanted):
            raise UserError(
                f"{found.place} was measured with other settings than {table.key} has now: "
                f"{'; '.join(differing)}. {found.remedy} to measure again, or give another "
                "--results"
            )
        return record

    def _found(self, cell: Cell) -> "_Found":
        """Return the record of a cell and where it is; two that differ are refused."""
        path, packed, name = self.path(cell), self.packed(cell.table), cell.name
        single = path.exists()  # asked before the line is: it goes only after its line is there
        values = packed.values(name)
        if values is None:
            return _Found(Record.read(path), str(path), "Move it away")
        place = f"{packed.path}, {name}"
        try:
            record = Record.from_json(values)
        except ValueError as error:
            raise UserError(f"{place}: {error}") from error
        if single and self._differs(path, record):
            raise UserError(
                f"{path} and {packed.path} both have a record of {cell}, and they differ; move "
                f"the file away, or remove the line of {name}"
            )
        return _Found(record, place, "Remove its line")

    def _differs(self, path: Path, record: Record) -> bool:
        try:
            return Record.read(path).to_json() != record.to_json()
        except UserError:
            if path.exists():
                raise
            return False  # it was packed meanwhile

    def records(self, table: Table, cells: Iterable[Cell]) -> dict[Cell, Record]:
        """Return the records that are there."""
        return {cell: self.record(table, cell) for cell in cells if self.has_record(cell)}

    def failure(self, cell: Cell) -> Failure | None:
        """Return why a cell failed at the last try, if it did."""
        path = self.failed_path(cell)
        try:
            values = read_json(path, {"error": str, "traceback": str}, remedy="remove it")
        except MissingFileError:
            return None
        return Failure(values["error"], values["traceback"])

    def weights(self, table: Table, cell: Cell) -> dict[str, Tensor]:
        """Return the weights that a cell kept, the very ones that its record is of."""
        record, path = self.record(table, cell), self.weights_path(cell)
        held_in = f"move {self.path(cell)} away"
        if not self.path(cell).exists():
            held_in = f"remove the line of {cell.name} from {self.packed(cell.table).path}"
        remedy = f"{held_in} to measure it again"
        if not path.exists():
            raise UserError(
                f"{path} is not there: {cell} was measured without keep_weights=True; {remedy}"
            )
        return read_tensors(path, sha256=str(record.weights_sha256), remedy=remedy)

    def keep(self, cell: Cell, record: Record, weights: bytes | None = None) -> None:
        """Write the record of a finished cell; what it was made from is removed.

        Args:
            cell: Which number.
            record: Its record.
            weights: The file of its weights, if they are to be kept. It is there before the
                record is, so a cell that is done has its weights.
        """
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        if weights is not None:
            with atomic_write(self.weights_path(cell)) as temporary:
                temporary.write_bytes(weights)
        record.write(path)
        self.failed_path(cell).unlink(missing_ok=True)
        shutil.rmtree(self.work_folder(cell), ignore_errors=True)

    def keep_failure(self, cell: Cell, failure: Failure) -> None:
        """Write why a cell failed; its checkpoints stay for the next try."""
        path = self.failed_path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {"cell": str(cell), "error": failure.error, "traceback": failure.traceback}
        write_json(path, values)

    def tables(self) -> tuple[str, ...]:
        """Return the keys of the tables that have a record in a file of its own."""
        return tuple(sorted({path.parts[-5] for path in self._single_files("*")}))

    def pack(self, table: str) -> int:
        """Put the records of a table that have files of their own into its packed files.

        A kill at any moment loses nothing: a file goes only after its line reads back as the very
        same values.

        Args:
            table: Its key.

        Returns:
            How many records were packed.
        """
        packed = self.packed(table)
        with hold_lock(self.folder / UNFINISHED / f"{table}.pack.lock"):
            files = {_cell_of(path): path for path in self._single_files(table)}
            for cell in files:
                self._found(cell)  # refuses damaged records, and two of a cell that differ
            values = {cell.name: read_json(path, Any) for cell, path in files.items()}
            fresh = {name: one for name, one in values.items() if name not in packed}
            if fresh:
                packed.write(fresh)
            for cell, path in files.items():
                if json.dumps(packed.values(cell.name)) != json.dumps(read_json(path, Any)):
                    raise UserError(f"{path} does not read back from {packed.path}; it is kept")
                path.unlink()
                _remove_empty(path.parent, self.folder)
        return len(files)

    def _single_files(self, table: str) -> list[Path]:
        """Return the records that have a file of their own."""
        found = self.folder.glob(f"{table}/*/*/*/*.json")
        return sorted(path for path in found if path.stem.isdecimal() and path.parts[-5][0] != ".")

    def claimed(self, cell: Cell) -> AbstractContextManager[None]:
        """Hold a cell against every other process, see :func:`hma.io.files.hold_lock`."""
        return hold_lock(self.folder / UNFINISHED / f"{cell.path}.lock")


class _Found(NamedTuple):
    """A record, where it is, and how to have its cell measured again."""

    record: Record
    place: str
    remedy: str


def _cell_of(path: Path) -> Cell:
    """Return the cell whose record is at a path, see :meth:`Results.path`."""
    table, budget, task, method = path.parts[-5:-1]
    return Cell(table, budget, task, method, int(path.stem))


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder and those above it below ``top``, up to one that holds something."""
    with suppress(OSError):
        while folder != top:
            folder.rmdir()
            folder = folder.parent


def translate(record: Record, table: Table, cell: Cell) -> Record:
    """Return a record in the names of today, where it says others that its table knows.

    Args:
        record: Of a cell of the table.
        table: Whose ``recorded_key`` and ``recorded_names`` are what records say.
        cell: Which number.
    """
    resolved, name, measures = dict(record.resolved), record.name, record.measures
    if "table" in resolved and resolved["table"] == table.recorded_key:
        resolved["table"] = table.key
    if "method" in resolved and resolved["method"] == table.recorded_names.get(cell.method):
        name = f"{cell.task}/{cell.method}"
        resolved |= {"method": cell.method, "name": name}
    if STEP_COSTS in measures:  # rows of a comparison, all in one cell
        costs, today = measures[STEP_COSTS], {v: k for k, v in table.recorded_names.items()}
        rows = {today.get(row, row): values for row, values in costs["rows"].items()}
        measures = measures | {STEP_COSTS: costs | {"rows": rows}}
    return replace(record, name=name, resolved=resolved, measures=measures)


def definition(table: Table, cell: Cell) -> dict[str, Any]:
    """Return what a record says of the cell it belongs to, in JSON values."""
    row = table.rows[cell.method]
    values = {
        "name": f"{cell.task}/{cell.method}",
        "table": cell.table,
        "budget": cell.budget,
        "task": cell.task,
        "method": cell.method,
        "settings": dict(row.settings),
        "rows": table.budget(cell.budget).rows,
    }
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
