"""``hma quickstart``: the first table, on data that needs no download."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.progress import Progress
from rich.table import Table

from hma.cli.option_problems import at_least
from hma.cli.outputs import output_file
from hma.cli.terminal import Terminal
from hma.files import written_whole
from hma.quickstart import GRAPHS, RECIPE, QuickstartLine, cells, has_graphs, run
from hma.report.numbers import counted
from hma.runs import RunOptions, train, write_page
from hma.training import SilentProgress

PAGE = RunOptions(source="digits:10", backbone="mlp", recipe=RECIPE)


def quickstart(
    *,
    seeds: Annotated[int, Parameter(validator=at_least(1))] = 3,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    folder: Path = Path("runs/quickstart"),
) -> None:
    """Train HMA and what else one would take on few and on shifted data; table and page.

    Parameters
    ----------
    seeds
        Runs of each row, one per seed.
    output
        Write the numbers of the table as JSON.
    folder
        Run folder of the page about one of the runs.
    """
    if output is not None:
        output = output_file(output, overwrite=True)
    console = Terminal()
    lines: list[QuickstartLine] = []
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("training", total=len(cells(seeds)))
        for lines in run(seeds):  # noqa: B007
            progress.advance(bar)
    console.print(_table(lines, seeds))
    console.say(
        "PARAM has the blocks of the paper's HMA but no memory: what it gains is not memory's.\n"
        "Context 'batch' sees the other rows of a test batch, 'batch-sorted' those beside it in\n"
        "the data; 'alone' never does."
    )
    if not has_graphs():
        console.say(f"{GRAPHS} need torch_geometric: pip install 'hma-torch[graph]'")
    with console.status("writing the page"):
        page = write_page(train(PAGE, folder, progress=SilentProgress()))
    console.say(f"report: {page}")
    if output is not None:
        with written_whole(output) as temporary:
            temporary.write_text(json.dumps([asdict(line) for line in lines], indent=2) + "\n")
        console.say(f"wrote {output}")


def _table(lines: list[QuickstartLine], seeds: int) -> Table:
    table = Table(title=f"Test accuracy, mean ± standard deviation over {counted(seeds, 'seed')}")
    for name in ("task", "test split", "method", "context"):
        table.add_column(name)
    table.add_column("accuracy", justify="right")
    table.add_column("seconds", justify="right")
    shown: tuple[str, str] | None = None
    for line in sorted(lines, key=lambda line: (line.task, line.test)):
        first = (line.task, line.test) != shown
        if first and shown is not None:
            table.add_section()
        shown = line.task, line.test
        table.add_row(
            line.task if first else "",
            line.test if first else "",
            line.method,
            line.context,
            f"{100 * line.mean:.1f} ± {100 * line.std:.1f}",
            f"{line.seconds / seeds:.1f}",
        )
    return table
