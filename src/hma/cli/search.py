"""``hma search``: settings of one row, chosen on validation data."""

import math
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hma.cli.arguments import at_least
from hma.cli.run import PLACES, Places, use_data_root
from hma.errors import UserError
from hma.extras import importing

if TYPE_CHECKING:
    from hma.paper.search_settings import Trial

SHOWN = 10


def search(
    table: str,
    *,
    only: str,
    budget: str = "small",
    trials: Annotated[int | None, Parameter(validator=at_least(1))] = None,
    seeds: Annotated[int, Parameter(validator=at_least(1))] = 1,
    places: Annotated[Places, Parameter(name="*")] = PLACES,
) -> None:
    """Search the settings of a row (sizes of the memories, learning rate) on validation alone.

    The same command again goes on where it was interrupted.

    Parameters
    ----------
    table
        A key that hma tables lists.
    only
        TASK/METHOD: the row, and the task to search it on.
    budget
        How each trial is trained.
    trials
        Most trials; all combinations if not given.
    seeds
        Seeds for each trial.
    """
    with importing():
        from rich.table import Table as Grid

        from hma.cli.show import Terminal
        from hma.paper.experiment_files import experiments_folder, find_table
        from hma.paper.results import Results
        from hma.paper.search_settings import search as search_row
        from hma.training import progress_for_terminal

    use_data_root(places)
    found, file = find_table(experiments_folder(places.experiments), table)
    cells = found.cells(budget, only, 1)
    if len(cells) != 1:
        named = ", ".join(f"{cell.task}/{cell.method}" for cell in cells)
        raise UserError(f"only must name one TASK/METHOD to search, got {only!r}, which is {named}")
    console = Terminal()

    def say(trial: "Trial", done: int, total: int) -> None:
        line = f"{done}/{total}: {_written(trial)}: {_shown(trial)}"
        console.say(line)

    ranked = search_row(
        found,
        cells[0],
        Results(places.results),
        trials=trials,
        seeds=seeds,
        progress=progress_for_terminal(),
        say=say,
    )
    grid = Grid(title=f"{cells[0].task}/{cells[0].method}: best of {len(ranked)} trials")
    for name in ranked[0].settings:
        grid.add_column(name, justify="right")
    grid.add_column(f"validation {found.metric}", justify="right")
    for trial in ranked[:SHOWN]:
        grid.add_row(*(f"{value}" for value in trial.settings.values()), _shown(trial))
    console.print(grid)
    if math.isnan(ranked[0].score):
        raise UserError("no trial came to a score: every training diverged; search a smaller lr")
    line = f"to use the best, write into {file}: {_written(ranked[0])}"
    console.say(line)


def _shown(trial: "Trial") -> str:
    return "diverged" if math.isnan(trial.score) else f"{trial.score:.2f}"


def _written(trial: "Trial") -> str:
    return ", ".join(f"{name}={value}" for name, value in trial.settings.items())
