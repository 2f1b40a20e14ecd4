"""Results on disk: one file for each finished cell, one for each failed one, all whole."""

import json
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from hma.errors import UserError
from hma.io.files import MissingFileError, atomic_write, hold_lock
from hma.io.json_files import read_json, write_json
from hma.io.tensor_files import read_tensors
from hma.tables.table import Cell, Table
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

    Records lie under ``TABLE/BUDGET/TASK/METHOD/SEED.json``, beside them weights that are kept as
    ``SEED.safetensors`` and failures as ``SEED.failed.json``; what is not finished lies under
    ``.unfinished``. Every file appears whole or not at all, so any number of runners may work on
    one folder.

    Args:
        folder: Where; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).expanduser()

    def path(self, cell: Cell) -> Path:
        """Return where the record of a cell is, or will be."""
        return self.folder / f"{cell.path}.json"

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
        if self.path(cell).exists():
            return "done"
        return "failed" if self.failed_path(cell).exists() else "missing"

    def record(self, table: Table, cell: Cell) -> Record:
        """Return the record of a cell; one made by another definition of the cell is refused."""
        path = self.path(cell)
        record = Record.read(path)
        wanted = definition(table, cell)
        measured = {name: record.resolved.get(name) for name in wanted}
        measured |= {"seed": record.seed, "recipe": record.setup["recipe"]}
        wanted |= {"seed": cell.seed, "recipe": table.recipe(cell).to_json()}
        if differing := differences(measured, wanted):
            raise UserError(
                f"{path} was measured with other settings than {table.key} has now: "
                f"{'; '.join(differing)}. Move it away to measure again, or give another --results"
            )
        return record

    def records(self, table: Table, cells: Iterable[Cell]) -> dict[Cell, Record]:
        """Return the records that are there."""
        return {cell: self.record(table, cell) for cell in cells if self.path(cell).exists()}

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
        remedy = f"move {self.path(cell)} away to measure it again"
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

    def claimed(self, cell: Cell) -> AbstractContextManager[None]:
        """Hold a cell against every other process, see :func:`hma.io.files.hold_lock`."""
        return hold_lock(self.folder / UNFINISHED / f"{cell.path}.lock")


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
