"""Cells: one from its definition to its record, and all that are missing until none is left."""

import json
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

from hma.data import Task
from hma.data.storage import MissingDataError
from hma.data.task import limited
from hma.errors import UserError
from hma.io.json_files import finite_or_none
from hma.methods import Learner
from hma.methods.cached_features import with_known_features
from hma.paper.results import Failure, Results, definition
from hma.paper.table import Cell, Job, Measure, Table
from hma.training import Progress, Record, SilentProgress, fit
from hma.training.between_steps import StopRequests
from hma.training.cost import using_threads
from hma.training.randomness import preserve_random_state, seed_everything
from hma.training.run_folder import RunFolder

SHARED = "shared"
"""Folder of what the cells of a task have in common, where rows work by themselves."""
LISTEN_SECONDS = 0.2
ASK_AGAIN_SECONDS = 1.0
"""How long a cell that another runner has is left alone."""
End = Literal["done", "failed", "busy", "absent", "stopped"]
"""How a cell ended: 'busy' if another process has it, 'absent' if its data is not there."""


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
        if results.has_record(cell):
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
    row, problem = table.rows[cell.method], table.problem(cell.task, cell.budget)
    if row.build is None:
        with using_threads(1):
            return _worked(table, cell, folder, progress or SilentProgress())
    with using_threads(1):
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
    whole = table.problem(cell.task, cell.budget).task(cell.seed)
    view = table.rows[cell.method].task
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
        problem=table.problem(cell.task, cell.budget),
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
    with preserve_random_state(next(held).device):
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
        row, problem = table.rows[cell.method], table.problem(cell.task, cell.budget)
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


def said_once(absent: Mapping[str, str]) -> str:
    """Return what to do about tasks whose data is not there, in full for the first of them.

    Args:
        absent: Task -> what is missing and how to get it.

    Example:
        >>> print(said_once({"A": "A is missing: put it there", "B": "B is missing: put it there"}))
        A is missing: put it there (the data of B is missing too)
    """
    first, *others = dict.fromkeys(absent.values())
    left = [task for task, message in absent.items() if message in others]
    return f"{first} (the data of {', '.join(left)} is missing too)" if left else first


def error_line(error: Exception) -> str:
    """Return an error in one line: the message of a user's mistake, else kind and message."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


@dataclass(frozen=True)
class Moved:
    """A cell got on."""

    cell: Cell
    steps: int
    total: int


@dataclass(frozen=True)
class Ended:
    """A cell is no longer running."""

    cell: Cell
    end: End
    message: str = ""


class Pool(Protocol):
    """Runs several cells at a time."""

    size: int
    """Most cells at a time."""

    def start(self, cell: Cell) -> None:
        """Begin with a cell."""

    def events(self, seconds: float) -> list[Moved | Ended]:
        """Return what has happened, after at most so many seconds."""

    def stop(self) -> None:
        """Ask all running cells to write a checkpoint and end."""

    def close(self) -> None:
        """Give everything back; running cells end."""


@dataclass
class Outcome:
    """What a run came to.

    Args:
        done: Cells finished by this run.
        elsewhere: Cells that another runner finished meanwhile.
        failed: Cells that failed, with their errors.
        absent: Tasks whose data is not there, with what to do.
        stopped: The signal that ended the run early, if one did.
    """

    done: list[Cell] = field(default_factory=list)
    elsewhere: list[Cell] = field(default_factory=list)
    failed: dict[Cell, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    stopped: int | None = None


class Board(Protocol):
    """Shows how a run goes."""

    def begin(self, cells: int, waiting: int) -> None:
        """Start: of ``cells`` in all, ``waiting`` are to be run."""

    def started(self, cell: Cell) -> None:
        """Show that a cell is being worked on."""

    def moved(self, event: Moved) -> None:
        """Show how far a running cell is."""

    def ended(self, event: Ended) -> None:
        """Show that a cell is no longer running."""

    def say(self, message: str) -> None:
        """Tell something that stays on the screen."""

    def close(self) -> None:
        """Leave the screen as it is."""


def run(
    cells: Iterable[Cell],
    results: Results,
    pool: Pool,
    board: Board,
    *,
    absent: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run every cell that has no record yet; cells that failed before are tried again.

    Ctrl-C and SIGTERM let the running cells write a checkpoint and end.

    Args:
        cells: What is wanted, in the order to run it.
        results: Where records are.
        pool: Runs them.
        board: Shows how it goes.
        absent: Tasks whose data is known not to be there, with what to do.
    """
    wanted = list(cells)
    missing = [cell for cell in wanted if results.state(cell) != "done"]
    board.begin(len(wanted), len(missing))
    try:
        with StopRequests() as stop:
            loop = _Loop(missing, results, pool, board, stop)
            loop.outcome.absent.update(absent)
            return loop.complete()
    finally:
        pool.close()
        board.close()


class _Loop:
    def __init__(
        self, missing: list[Cell], results: Results, pool: Pool, board: Board, stop: StopRequests
    ) -> None:
        self.results, self.pool, self.board, self.stop = results, pool, board, stop
        self.waiting = deque(missing)
        self.busy: deque[tuple[float, Cell]] = deque()
        self.running: set[Cell] = set()
        self.outcome = Outcome()

    def complete(self) -> Outcome:
        """Go on until nothing runs and nothing waits."""
        while self.running or self.waiting or self.busy:
            if self.stop.received is not None and self.outcome.stopped is None:
                self.outcome.stopped = self.stop.received
                self.board.say("stopping: running cells write a checkpoint")
                self.waiting.clear()
                self.busy.clear()
                self.pool.stop()
            self._ask_again()
            while self.waiting and len(self.running) < self.pool.size and not self.stop.received:
                self._start(self.waiting.popleft())
            if not self.running and self.busy:
                time.sleep(LISTEN_SECONDS)
            for event in self.pool.events(LISTEN_SECONDS):
                if isinstance(event, Ended):
                    self._ended(event)
                else:
                    self.board.moved(event)
        return self.outcome

    def _start(self, cell: Cell) -> None:
        if self.results.has_record(cell):  # another runner was faster
            self.outcome.elsewhere.append(cell)
            self.board.ended(Ended(cell, "done"))
        elif cell.task in self.outcome.absent:
            self.board.ended(Ended(cell, "absent"))
        else:
            self.stop.idle = not self.running  # the first start takes seconds
            self.pool.start(cell)
            self.stop.idle = False
            self.running.add(cell)
            self.board.started(cell)

    def _ask_again(self) -> None:
        while self.busy and self.busy[0][0] <= time.monotonic():
            _, cell = self.busy.popleft()
            self.waiting.append(cell)

    def _ended(self, event: Ended) -> None:
        cell = event.cell
        self.running.discard(cell)
        if event.end == "done":
            self.outcome.done.append(cell)
        elif event.end == "failed":
            self.outcome.failed[cell] = event.message
        elif event.end == "absent":
            self.outcome.absent[cell.task] = event.message
        elif event.end == "busy" and self.outcome.stopped is None:
            self.busy.append((time.monotonic() + ASK_AGAIN_SECONDS, cell))
        self.board.ended(event)
