"""``hma explain``: what a prediction owes to the memories, and what it is made of."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hma.cli.arguments import (
    Encoding,
    Overwrite,
    RunFolder,
    RunSeed,
    at_least,
    open_run,
    output_file,
)
from hma.extras import importing

if TYPE_CHECKING:
    from rich.table import Table

    from hma.runs.explanation import RowExplanation


def explain(
    run: RunFolder,
    source: str,
    *,
    index: Annotated[int, Parameter(validator=at_least(0))],
    top: Annotated[int, Parameter(validator=at_least(1))] = 5,
    context: Literal["alone", "batch"] = "alone",
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    overwrite: Overwrite = False,
    encoding: Encoding = None,
    seed: RunSeed = None,
) -> None:
    """Show what one prediction is made of, and which training rows are like it.

    By default a prediction is a sum: what the plain part, each training row and each slot put into
    it. With --memory hma parts do not add up: an effect is the change of the prediction when
    a part of the memories is left out, and a share of attention says what was read, not what
    decided.

    Parameters
    ----------
    source
        Rows of the same kind as at training.
    index
        Which row of the source, counted from 0.
    top
        How many classes, training rows, slots and neighbours to show of each, the first first.
    context
        'batch' also shows the 255 rows after it as neighbours.
    output
        Also write a page, with pictures where rows are pictures.
    """
    with importing():
        from hma.cli.show import Terminal
        from hma.io.files import atomic_write
        from hma.runs.explanation import as_page, explain_row
        from hma.runs.source import rows_for

    if output is not None:
        output = output_file(output, overwrite=overwrite)
    opened = open_run(run, seed)
    rows = rows_for(opened, source, labelled=False, encoding=encoding)
    found = explain_row(opened, rows, index, top=top, context=context)
    terminal = Terminal()
    for table in _tables(found):
        terminal.print(table)
    if found.note:
        terminal.say(found.note)
    if output is not None:
        with atomic_write(output) as temporary:
            temporary.write_text(as_page(found), encoding="utf-8")
        terminal.say(f"wrote {output}")


def _tables(found: "RowExplanation") -> Iterator["Table"]:
    from hma.report.numbers import percent

    if found.adds_up:
        title, first, number = f"What {found.explained} is the sum of", "part", "puts in"
    else:
        title, first, number = f"Effects on {found.explained}, by leaving out", "left out", "change"
    effects = _table(f"{found.description}: {found.answer}\n{title}", first, number)
    for effect in found.effects:
        effects.add_row(effect.part, effect.change, effect.label, effect.description)
    yield effects
    near = _table(f"Nearest of {found.near_of} training rows, by their features", "", "distance")
    for row in found.near:
        near.add_row("training row", f"{row.distance:.3g}", row.label, row.description)
    yield near
    what = "Attention: what was read, not what decided"
    if found.adds_up:
        what = "Shares of the answer, whatever they speak for"
    looked = _table(what, "looked at", "share")
    for seen in found.seen:
        looked.add_row(seen.kind, percent(seen.share), seen.label, seen.description)
    looked.add_section()
    for name, share in found.by_group:
        looked.add_row("all together", percent(share), name, "queue rows and slots")
    yield looked


def _table(title: str, first: str, number: str) -> "Table":
    from rich.table import Table

    table = Table(title=title)
    for name in (first, number, "label", "what"):
        table.add_column(name, justify="right" if name == number else "left")
    return table
