"""``hma tables`` and ``hma run``: which tables there are, and running what is missing of one."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hma.cli.arguments import at_least
from hma.errors import Interrupted, UserError
from hma.extras import importing

if TYPE_CHECKING:
    from hma.cli.show import Terminal
    from hma.paper.cells import Outcome, Pool
    from hma.paper.results import Results


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where experiments and results are."""

    results: Path = Path("results")
    """Folder of the records."""
    experiments: Path | None = None
    """Folder of the experiment files; ./experiments or hma's own if not given."""
    data_root: Path | None = None
    """Folder of the data; $HMA_DATA or the cache folder if not given."""


PLACES = Places()


def use_data_root(places: Places) -> None:
    """Let every process that runs a cell find the data."""
    if places.data_root is not None:
        os.environ["HMA_DATA"] = str(places.data_root.expanduser().absolute())


def tables(*, places: Annotated[Places, Parameter(name="*")] = PLACES) -> None:
    """List the tables, and how many of their cells are measured."""
    with importing():
        from rich.table import Table as Grid

        from hma.cli.show import Terminal
        from hma.paper.experiment_files import experiments_folder, load_tables
        from hma.paper.results import Results
        from hma.paper.table import BUDGETS

    results = Results(places.results)
    grid = Grid(title="Tables: cells measured, by budget")
    for name in ("table", "what", "tasks", "methods"):
        grid.add_column(name)
    for name in BUDGETS:
        grid.add_column(name, justify="right")
    for table in load_tables(experiments_folder(places.experiments)).values():
        counts = []
        for budget in BUDGETS:
            cells = table.cells(budget) if budget in table.budgets else ()
            states = [(results.state(cell), table.rows[cell.method].retired) for cell in cells]
            found = [state for state, retired in states if state == "done" or not retired]
            done, failed = found.count("done"), found.count("failed")
            count = f"{done}/{len(found)}" if found else ""
            counts.append(count + (f" ({failed} failed)" if failed else ""))
        grid.add_row(
            table.key, table.title, str(len(table.problems)), str(len(table.rows)), *counts
        )
    Terminal().print(grid)


def run(
    table: str,
    *,
    only: str | None = None,
    seeds: Annotated[int | None, Parameter(validator=at_least(1))] = None,
    budget: str = "small",
    workers: Annotated[int, Parameter(validator=at_least(1))] = 1,
    ray: str | None = None,
    places: Annotated[Places, Parameter(name="*")] = PLACES,
) -> None:
    """Run the cells of a table that have no record yet.

    Each cell computes with one thread, so a record does not depend on how it was run. The same
    command again, after an interruption of any kind, goes on; finished cells are never repeated.

    Parameters
    ----------
    table
        A key that hma tables lists.
    only
        TASK/METHOD, TASK or METHOD; * stands for anything; several with commas between.
    seeds
        Number of seeds; the budget's if not given.
    budget
        smoke (a minute), small (a stated reduction for two cores) or the whole protocol: paper, or
        full for a suite that is not the paper's. Some tables have tiny: a smaller backbone.
    workers
        Cells at a time, each in a process of its own.
    ray
        Run cells as Ray tasks instead: 'auto' for the cluster of this machine, the address of
        another, or 'local' for one that ends with the run.
    """
    with importing():
        from hma.cli.board import board_for_terminal
        from hma.cli.show import Terminal
        from hma.paper.cells import absent_data, said_once
        from hma.paper.cells import run as run_cells
        from hma.paper.experiment_files import experiments_folder, find_table
        from hma.paper.results import Results

    use_data_root(places)
    with importing():  # experiment files and data import what they need
        found, file = find_table(experiments_folder(places.experiments), table)
        cells = found.cells(budget, only, seeds, retired=False)
        if not cells:
            gone = {found.rows[cell.method].retired for cell in found.cells(budget, only, seeds)}
            raise UserError(
                f"{only} is no longer part of hma and can only be reported; check out commit "
                f"{', '.join(sorted(gone))} to measure it, or choose another row"
            )
        results = Results(places.results)
        measured = results.records(found, cells)  # refuses records of other settings before work
        waiting = [cell for cell in cells if cell not in measured]
        absent = absent_data(found, waiting) if ray is None else {}  # a cluster has its own data
    console = Terminal()
    console.say(f"{found.key}, budget {budget}: {found.budget(budget).what}")
    if not waiting:
        console.say(f"all {len(cells)} cells are measured; hma report {found.key}")
        return
    if all(cell.task in absent for cell in waiting):
        raise UserError(said_once(absent))
    pool = _pool(ray, workers, file, results)
    outcome = run_cells(cells, results, pool, board_for_terminal(), absent=absent)
    _conclude(outcome, results, console, f"hma report {found.key} --budget {budget}")


def _pool(ray: str | None, workers: int, file: Path, results: "Results") -> "Pool":
    if ray is None:
        from hma.paper.processes import Processes

        return Processes(workers, file, results)
    from hma.paper.ray_tasks import RayTasks

    return RayTasks(ray, file, results)


def _conclude(outcome: "Outcome", results: "Results", console: "Terminal", then: str) -> None:
    from hma.cli.show import Terminal

    finished = len(outcome.done) + len(outcome.elsewhere)
    console.say(f"{finished} cells finished, records in {results.folder}; {then}")
    for cell, error in outcome.failed.items():
        Terminal(stderr=True).say(f"hma: {cell} failed: {error} ({results.failed_path(cell)})")
    if outcome.stopped is not None:
        raise Interrupted("stopped; the same command goes on", outcome.stopped)
    if outcome.absent:
        from hma.paper.cells import said_once

        raise UserError(said_once(outcome.absent))
    if outcome.failed:
        sys.exit(1)
