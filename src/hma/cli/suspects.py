"""``hma suspects``: which training labels may be wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hma.cli.arguments import Overwrite, RunFolder, RunSeed, at_least, open_run, output_file
from hma.extras import importing

if TYPE_CHECKING:
    from rich.table import Table

    from hma.report.sections.suspects import SuspectRows

SHOWN = 20


def suspects(
    run: RunFolder,
    *,
    top: Annotated[int | None, Parameter(validator=at_least(1))] = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    overwrite: Overwrite = False,
    cleanlab: Annotated[bool, Parameter(negative="")] = False,
    seed: RunSeed = None,
) -> None:
    """List the training rows whose labels may be wrong, the most suspicious first.

    Each row of the memory is judged by the others: its doubt is the probability that they give to
    labels other than its own. Nothing is trained again.

    Parameters
    ----------
    top
        How many rows; 20 if they are printed, all if they are written.
    output
        Write the rows as CSV.
    cleanlab
        Let cleanlab say how many labels are wrong, and which; for classes.
    """
    with importing():
        from hma.cli.show import Terminal
        from hma.report.numbers import counted
        from hma.runs.memory_search import write_rows
        from hma.runs.suspects import suspects_of
        from hma.training import progress_for_terminal

    if output is not None:
        output = output_file(output, overwrite=overwrite, endings=(".csv",))
    opened = open_run(run, seed)
    limit = top if output is not None else top or SHOWN
    progress = progress_for_terminal(lines=True)
    found = suspects_of(opened, top=limit, cleanlab=cleanlab, progress=progress)
    terminal = Terminal()
    if output is not None:
        write_rows(found, output)
        terminal.say(f"wrote {counted(len(found.rows), 'row')} to {output}")
    else:
        terminal.print(_table(found))
    for note in found.notes():
        terminal.say(note)


def _table(found: "SuspectRows") -> "Table":
    from rich.table import Table

    from hma.report.numbers import percent

    table = Table(
        title=f"{len(found.rows)} of {found.of} rows of the memory, the least believed label first",
        show_lines=True,
    )
    names = ["id", "label", "suggested", found.measure]
    asked = [] if found.issues is None else ["cleanlab"]
    for name in (*names, *asked, "what", "rows that disagree"):
        table.add_column(name, justify="right" if name in ("id", found.measure) else "left")
    for row in found.rows:
        sure = "" if found.number else f" ({percent(row.sure)})"
        table.add_row(
            *(str(row.id), row.label, f"{row.suggested}{sure}", found.score_text(row)),
            *([] if row.issue is None else ["wrong" if row.issue else ""]),
            row.what,
            "\n".join(map(str, row.against)),
        )
    return table
