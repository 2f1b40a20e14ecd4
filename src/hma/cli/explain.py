"""``hma explain``: which training rows and slots a prediction looked at."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from hma.cli.option_problems import at_least
from hma.cli.outputs import output_file
from hma.cli.terminal import Terminal
from hma.files import written_whole
from hma.runs import Run
from hma.runs.explanation import RowExplanation, as_page, explain_row
from hma.runs.folder import rows_for


def explain(
    run: Path,
    source: str,
    *,
    index: Annotated[int, Parameter(validator=at_least(0))],
    top: Annotated[int, Parameter(validator=at_least(1))] = 5,
    context: Literal["alone", "batch"] = "alone",
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    overwrite: bool = False,
) -> None:
    """Show which training rows and slots decided one prediction.

    Parameters
    ----------
    run
        A folder that hma train wrote.
    source
        Rows of the same kind as at training.
    index
        Which row of the source, counted from 0.
    top
        How many of the most attended training rows, slots and neighbours to show of each.
    context
        'batch' also shows the 255 rows after it as neighbours.
    output
        Also write a page, with pictures where rows are pictures.
    overwrite
        Replace an existing page.
    """
    if output is not None:
        output = output_file(output, overwrite=overwrite)
    opened = Run.open(run)
    rows = rows_for(opened, source, labelled=False)
    found = explain_row(opened, rows, index, top=top, context=context)
    terminal = Terminal()
    terminal.print(_table(found))
    if output is not None:
        with written_whole(output) as temporary:
            temporary.write_text(as_page(found), encoding="utf-8")
        terminal.say(f"wrote {output}")


def _table(found: RowExplanation) -> Table:
    table = Table(title=f"{found.description}: {found.answer}")
    for name in ("looked at", "share", "label", "what"):
        table.add_column(name, justify="right" if name == "share" else "left")
    for seen in found.seen:
        cells = (seen.kind, f"{100 * seen.share:.1f}%", seen.label, seen.description)
        table.add_row(*cells)
    table.add_section()
    for name, share in found.by_group:
        table.add_row("all together", f"{100 * share:.1f}%", name, "queue rows and slots")
    return table
