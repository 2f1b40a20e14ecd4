"""``hma remember``, ``hma forget`` and ``hma memory``: teach a memory, shrink it, look into it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hma.cli.arguments import (
    Encoding,
    LabelColumns,
    Overwrite,
    RunFolder,
    RunSeed,
    SkipBadFiles,
    SkipUnlabelled,
    at_least,
    open_run,
    output_file,
)
from hma.errors import UserError
from hma.extras import importing

if TYPE_CHECKING:
    from rich.table import Table

    from hma.runs.memory_search import Found

SHOWN = 20
"""Rows that are printed unless more are asked for."""
MOST_DIGITS = 60
"""Of a number that is looked up at all."""


def remember(
    run: RunFolder,
    source: str,
    *,
    new_classes: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    target: LabelColumns = (),
    note: str = "",
    skip_missing_labels: SkipUnlabelled = False,
    skip_bad_files: SkipBadFiles = False,
    encoding: Encoding = None,
    seed: RunSeed = None,
) -> None:
    """Teach a run's memory more rows, without training; they vote at once.

    Every change is a version of its own: hma memory RUN --history lists them, --restore brings one
    back. Rows that the memory holds already are left out.

    Parameters
    ----------
    source
        Labelled rows of the same kind as at training: anything that hma train takes.
    new_classes
        Allow classes that training never saw; only the vote can answer with them.
    yes
        Teach rows that are validation or test rows of the run as well; scores, audits and promises
        leave them out from then on.
    note
        A line to keep with the version.
    """
    with importing():
        from hma.cli.show import Terminal, tell_ignored, tell_version
        from hma.runs.living import LivingMemory
        from hma.runs.source import rows_for
        from hma.training import progress_for_terminal

    opened = open_run(run, seed)
    rows = rows_for(
        opened,
        source,
        labelled=True,
        target=target,
        skip_missing_labels=skip_missing_labels,
        skip_bad_files=skip_bad_files,
        encoding=encoding,
    )
    terminal = Terminal()
    memory = LivingMemory.open(opened, terminal.say, progress_for_terminal(lines=True))
    version = memory.remember(rows, new_classes=new_classes, yes=yes, note=note, name=source)
    tell_ignored(terminal, opened, rows)
    tell_version(terminal, version)


def forget(
    run: RunFolder,
    *,
    ids: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    where: str | None = None,
    label: Annotated[str | None, Parameter(name="--class")] = None,
    yes: Annotated[bool, Parameter(negative="")] = False,
    note: str = "",
    seed: RunSeed = None,
) -> None:
    """Remove rows from a run's memory, so that they no longer vote, and say what remains of them.

    Parameters
    ----------
    ids
        Ids of rows, as hma memory RUN lists them, such as 3,17.
    where
        Tables: a condition on columns, such as "city == 'Oslo' and age >= 65".
    label
        Remove all rows of this class.
    yes
        Go ahead even if this removes the last row of a class, or every row.
    note
        A line to keep with the version.
    """
    with importing():
        from hma.cli.show import Terminal, tell_version
        from hma.runs.living import LivingMemory
        from hma.training import progress_for_terminal

    opened = open_run(run, seed)
    terminal = Terminal()
    memory = LivingMemory.open(opened, terminal.say, progress_for_terminal(lines=True))
    chosen = _numbers(ids) if ids else None
    version = memory.forget(ids=chosen, where=where, label=label, yes=yes, note=note)
    tell_version(terminal, version)
    terminal.say(f"what remains: {version.remains}")
    terminal.say("earlier versions keep the rows on disk, for hma memory --restore")


def memory(
    run: RunFolder,
    *,
    label: Annotated[str | None, Parameter(name="--class")] = None,
    like: str | None = None,
    index: Annotated[int, Parameter(validator=at_least(0))] = 0,
    encoding: Encoding = None,
    deciding: Annotated[bool, Parameter(negative="")] = False,
    top: Annotated[int | None, Parameter(validator=at_least(1))] = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    overwrite: Overwrite = False,
    history: Annotated[bool, Parameter(negative="")] = False,
    restore: int | None = None,
    seed: RunSeed = None,
) -> None:
    """List the rows of a run's memory, or its versions, or bring an earlier version back.

    Parameters
    ----------
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
    history
        List the versions of the memory instead.
    restore
        Go back to this version; that is recorded as a new version.
    """
    with importing():
        from hma.cli.show import Terminal, history_table, tell_version
        from hma.report.numbers import counted
        from hma.runs.living import LivingMemory
        from hma.runs.memory_search import search, write_rows
        from hma.runs.source import rows_for
        from hma.training import progress_for_terminal

    if output is not None:
        output = output_file(output, overwrite=overwrite, endings=(".csv",))
    terminal, progress = Terminal(), progress_for_terminal(lines=True)
    opened = open_run(run, seed)
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


def _table(found: "Found", version: int) -> "Table":
    from rich.table import Table

    shown = f"{len(found.rows)} of {found.of} rows of the memory, version {version}"
    table = Table(title=f"{shown}{'; ' if found.note else ''}{found.note}")
    for name in found.header:
        table.add_column(name, justify="right" if name in ("id", found.measure) else "left")
    for line in found.lines():
        table.add_row(*line)
    return table


def _numbers(texts: tuple[str, ...]) -> list[int]:
    """Return ids that are written with commas, or one by one."""
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if wrong := [part for part in parts if not part.isdecimal() or len(part) > MOST_DIGITS]:
        raise UserError(f"--ids must be whole numbers such as 3,17, got {wrong[0][:60]!r}")
    return [int(part) for part in parts]
