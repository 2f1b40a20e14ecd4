"""``hma memory``: what a run's memory holds, its versions, and an earlier one brought back."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from hma.cli.opening import Encoding, opened_run
from hma.cli.option_problems import at_least
from hma.cli.outputs import output_file
from hma.cli.show_versions import history_table, tell_version
from hma.cli.terminal import Terminal
from hma.errors import UserError
from hma.report.numbers import counted
from hma.runs.living import LivingMemory
from hma.runs.memory_search import Found, search, write_rows
from hma.runs.source import rows_for
from hma.training import progress_for_terminal

SHOWN = 20


def memory(
    run: Path,
    *,
    label: Annotated[str | None, Parameter(name="--class")] = None,
    like: str | None = None,
    index: Annotated[int, Parameter(validator=at_least(0))] = 0,
    encoding: Encoding = None,
    deciding: Annotated[bool, Parameter(negative="")] = False,
    top: Annotated[int | None, Parameter(validator=at_least(1))] = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    overwrite: bool = False,
    history: Annotated[bool, Parameter(negative="")] = False,
    restore: int | None = None,
    seed: int | None = None,
) -> None:
    """List the rows of a run's memory, or its versions, or bring an earlier version back.

    Parameters
    ----------
    run
        A folder that hma train wrote.
    label
        Rows of this class alone.
    like
        A source; the rows nearest to its row --index come first, by the keys that vote.
    index
        Which row of --like, counted from 0.
    deciding
        Rows with the largest part of the vote over the run's test rows come first.
    top
        How many rows; 20 if they are printed, all if they are written.
    output
        Write the rows as CSV.
    overwrite
        Replace an existing file.
    history
        List the versions of the memory instead.
    restore
        Let this version answer again; a new version says so.
    seed
        Of a run with several seeds, which one; the first if not given.
    """
    if output is not None:
        output = output_file(output, overwrite=overwrite, endings=(".csv",))
    terminal, progress = Terminal(), progress_for_terminal(lines=True)
    opened = opened_run(run, seed)
    held = LivingMemory.open(opened, terminal.say, progress)
    searching = label is not None or like is not None or deciding or output is not None
    if history + (restore is not None) + searching > 1:
        raise UserError("--history and --restore stand alone; leave the other options out")
    if restore is not None:
        tell_version(terminal, held.restore(restore))
    elif history:
        terminal.print(history_table(held.history(), held.rows_at_first()))
    else:
        example = None
        if like is not None:
            example = (rows_for(opened, like, labelled=False, encoding=encoding), index)
        limit = top if output is not None else top or SHOWN
        found = search(
            held, label=label, like=example, deciding=deciding, top=limit, progress=progress
        )
        if output is not None:
            write_rows(found, output)
            terminal.say(f"wrote {counted(len(found.rows), 'row')} to {output}")
        else:
            terminal.print(_table(found, opened.living.number))


def _table(found: Found, version: int) -> Table:
    shown = f"{len(found.rows)} of {found.of} rows of the memory, version {version}"
    table = Table(title=f"{shown}{'; ' if found.note else ''}{found.note}")
    for name in found.header:
        table.add_column(name, justify="right" if name in ("id", found.measure) else "left")
    for line in found.lines():
        table.add_row(*line)
    return table
