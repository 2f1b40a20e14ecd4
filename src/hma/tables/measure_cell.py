"""One cell from its definition to its record; whoever calls, the numbers are the same."""

import json
import tempfile
import traceback
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from hma.data import Task
from hma.data.storage import MissingDataError
from hma.data.task import limited
from hma.errors import UserError
from hma.io.json_files import finite_or_none
from hma.methods import Learner
from hma.methods.cached_features import with_known_features
from hma.tables.results import Failure, Results, definition
from hma.tables.table import Cell, Job, Measure, Table
from hma.training import Progress, Record, SilentProgress, fit
from hma.training.folder import RunFolder
from hma.training.randomness import kept, seed_everything
from hma.training.threads import one_thread

SHARED = "shared"
"""Folder of what the cells of a task have in common, where rows work by themselves."""


def work(table: Table, cell: Cell, results: Results, progress: Progress | None = None) -> None:
    """Bring a cell to its record, from its last checkpoint if it has one.

    A cell that fails leaves a :class:`Failure` and raises nothing. Missing data is not the
    cell's failure and is raised, as is :class:`~hma.io.files.HeldError`.

    Args:
        table: What the cell is of.
        cell: Which number.
        results: Where records go.
        progress: Told how far the training is.
    """
    with results.claimed(cell):
        if results.path(cell).exists():
            return
        try:
            record = measure(table, cell, results.work_folder(cell), progress)
        except MissingDataError:
            raise
        except Exception as error:  # whatever it is, the other cells go on
            results.keep_failure(cell, Failure(error_line(error), traceback.format_exc()))
            return
        results.keep(cell, record, kept_weights(table, cell, results.work_folder(cell)))


def measure(
    table: Table, cell: Cell, folder: Path | None, progress: Progress | None = None
) -> Record:
    """Train and test a cell; its checkpoints go to ``folder``, if there is one."""
    row, problem = table.rows[cell.method], table.problems[cell.task]
    if row.build is None:
        with one_thread():
            return _worked(table, cell, folder, progress or SilentProgress())
    with one_thread():
        task = _task(table, cell)
        learner = row.build(problem.backbone, **row.settings)(task, cell.seed)
        known = task
        if folder is not None:
            known = with_known_features(task, learner, folder.parents[1] / "features")
        record = fit(
            learner,
            known,
            table.recipe(cell),
            seed=cell.seed,
            folder=folder,
            resolved=definition(table, cell),
            progress=progress or SilentProgress(),
        )
        if row.measure is None:
            return record
        measured = _measured(row.measure, learner, task, cell)
        return replace(record, measures=record.measures | measured)


def _task(table: Table, cell: Cell) -> Task:
    """Return the data of a cell, as its row sees it."""
    whole, view = table.problems[cell.task].task(cell.seed), table.rows[cell.method].task
    task = limited(whole, table.budget(cell.budget).rows, seed=cell.seed)
    return task if view is None else view(task, cell.seed)


def _worked(table: Table, cell: Cell, folder: Path | None, progress: Progress) -> Record:
    """Let a row come to a cell's record by itself; without a folder in one that is then removed."""
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            return _worked(table, cell, Path(place) / cell.path, progress)
    row = table.rows[cell.method]
    assert row.work is not None
    job = Job(
        cell=cell,
        problem=table.problems[cell.task],
        settings=row.settings,
        recipe=table.recipe(cell),
        folder=folder,
        shared=folder.parents[1] / SHARED,
        progress=progress,
    )
    record = row.work(job)
    return replace(record, resolved={**record.resolved, **definition(table, cell)})


def kept_weights(table: Table, cell: Cell, folder: Path) -> bytes | None:
    """Return the weights file of a cell that was measured in ``folder``, if its row keeps it."""
    if not table.rows[cell.method].keep_weights:
        return None
    return RunFolder(folder).weights.read_bytes()


def _measured(measure: Measure, learner: Learner, task: Task, cell: Cell) -> dict[str, Any]:
    """Return what a row measures; what it draws at random is the same again."""
    learner.module.eval()
    learner.use(learner.contexts[0])
    held = chain(learner.module.parameters(), learner.module.buffers())
    with kept(next(held).device):
        seed_everything(cell.seed)
        values = dict(measure(learner, task))
    try:
        plain: dict[str, Any] = finite_or_none(json.loads(json.dumps(values)))
    except TypeError as error:
        raise UserError(f"what {cell} measures must be JSON values: {error}") from error
    return plain


def absent_data(table: Table, cells: Iterable[Cell]) -> dict[str, str]:
    """Return the tasks whose data is not there, with what to do, up to the first that is there.

    Nothing is computed. It spares a process for each cell of a table whose data is missing.
    """
    first: dict[str, Cell] = {}
    for cell in cells:
        first.setdefault(cell.task, cell)
    absent: dict[str, str] = {}
    for cell in first.values():
        row, problem = table.rows[cell.method], table.problems[cell.task]
        try:
            task = _task(table, cell)
            if row.build is not None:
                row.build(problem.backbone, **row.settings)(task, cell.seed)
        except MissingDataError as error:
            absent[cell.task] = str(error)
        except Exception:  # its cell will say so
            break
        else:
            break
    return absent


def error_line(error: Exception) -> str:
    """Return an error in one line: the message of a user's mistake, else kind and message."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
