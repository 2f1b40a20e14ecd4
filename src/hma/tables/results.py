"""Results on disk: one file for each finished cell, one for each failed one, all whole."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hma.errors import UserError
from hma.files import HeldError, held, written_whole
from hma.tables.table import Cell, Table
from hma.training import Record
from hma.training.recipe import NO_EFFECT_ON_RESULTS, Recipe

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


class Busy(Exception):  # noqa: N818 - nothing is wrong
    """Another process is at work on the cell."""


class Results:
    """A folder of results.

    Records lie under ``TABLE/BUDGET/TASK/METHOD/SEED.json``, failures beside them as
    ``SEED.failed.json``, and what is not finished under ``.unfinished``. Every file appears whole
    or not at all, so any number of runners may work on one folder.

    Args:
        folder: Where; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder).expanduser()

    def path(self, cell: Cell) -> Path:
        """Return where the record of a cell is, or will be."""
        return self.folder / f"{cell.path}.json"

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
        differing = _differences(record, definition(table, cell), table.recipe(cell))
        if record.seed != cell.seed:
            differing.append(f"seed was {record.seed}, is {cell.seed} now")
        if differing:
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
            values = json.loads(path.read_text(encoding="utf-8"))
            return Failure(str(values["error"]), str(values["traceback"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged: {error!r}; remove it") from error

    def keep(self, cell: Cell, record: Record) -> None:
        """Write the record of a finished cell; what it was made from is removed."""
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        record.write(path)
        self.failed_path(cell).unlink(missing_ok=True)
        shutil.rmtree(self.work_folder(cell), ignore_errors=True)

    def keep_failure(self, cell: Cell, failure: Failure) -> None:
        """Write why a cell failed; its checkpoints stay for the next try."""
        path = self.failed_path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {"cell": str(cell), "error": failure.error, "traceback": failure.traceback}
        with written_whole(path) as temporary:
            temporary.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

    @contextmanager
    def claimed(self, cell: Cell) -> Iterator[None]:
        """Hold a cell against every other process; raises :class:`Busy` if one has it.

        The claim ends with the process, however it ends.
        """
        try:
            with held(self.folder / UNFINISHED / f"{cell.path}.lock"):
                yield
        except HeldError as error:
            raise Busy(str(cell)) from error


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


def _differences(record: Record, wanted: Mapping[str, Any], recipe: Recipe) -> list[str]:
    found = {name: record.resolved.get(name) for name in wanted}
    pairs = [(name, found[name], wanted[name]) for name in wanted]
    then, defaults = record.setup["recipe"], Recipe().to_json()
    pairs += [
        (name, then.get(name, defaults[name]), value)
        for name, value in recipe.to_json().items()
        if name not in NO_EFFECT_ON_RESULTS
    ]
    return [f"{name} was {old!r}, is {new!r} now" for name, old, new in pairs if old != new]
