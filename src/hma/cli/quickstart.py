"""``hma quickstart``: a tour of what a memory is for, on data that needs no download."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hma.cli.arguments import at_least, output_folder
from hma.extras import importing

if TYPE_CHECKING:
    from rich.table import Table

    from hma.quickstart.step import Line, Step


def quickstart(
    *,
    seeds: Annotated[int, Parameter(validator=at_least(1))] = 3,
    folder: Path = Path("runs/tour"),
) -> None:
    """Take a tour: few labels, a row explained, the unknown, teaching, wrong labels, graphs.

    Each step prints what it found and the command that does the same; then come a table and a page.
    The same command again goes on where it stopped, or shows what is there.

    Parameters
    ----------
    seeds
        Seeds of the table, from 0 on.
    folder
        Where runs, files, the record and the page go; one that holds anything else is refused.
    """
    with importing():
        from hma.cli.show import Terminal
        from hma.quickstart import take_tour
        from hma.quickstart.tour import PAGE, RECORD
        from hma.training import progress_for_terminal

    folder = output_folder(folder)
    terminal, done = Terminal(), 0

    def tell(step: "Step") -> None:
        nonlocal done
        done += 1
        terminal.print(f"{done}. {step.title}", style="bold")
        terminal.print(f"   {step.result}", soft_wrap=True)
        terminal.print(f"   $ {step.command}\n", soft_wrap=True)

    found = take_tour(folder, seeds, progress=progress_for_terminal(lines=True), tell=tell)
    terminal.print(_table(found.lines, seeds))
    terminal.say("PARAM has the blocks of the paper's memory but no memory.")
    terminal.say(f"page: {folder / PAGE}")
    terminal.say(f"record: {folder / RECORD}")


def _table(lines: Sequence["Line"], seeds: int) -> "Table":
    from rich.table import Table

    from hma.report.numbers import counted

    table = Table(
        title=f"10 labels of each digit, over {counted(seeds, 'seed')}; graphs, one seed",
        caption="mixture: what hma train deploys",
    )
    graphs = any(line.graphs is not None for line in lines)
    table.add_column("method")
    for name in ("accuracy", "log loss", *(["graphs, accuracy"] if graphs else [])):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(line.method, *line.texts[: 3 if graphs else 2])
    return table
