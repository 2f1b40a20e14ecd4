"""The report for a terminal, readable at 100 columns."""

from collections.abc import Iterator
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from hma.report.table import prose
from hma.report.table.content import TableReport
from hma.report.table.sheets import Field, Sheet, sheets
from hma.report.words import shown

WIDTH = 100


def terminal(report: TableReport) -> Iterator[RenderableType]:
    """Yield what to print, one after the other."""
    yield Text(f"{report.key}: {shown(report.title)}", style="bold")
    yield Text(f"budget {report.budget}: {shown(report.budget_what)}. {prose.state(report)}")
    for note in report.notes:
        yield Text(shown(note))
    for warning in report.warnings:
        yield Text(f"! {shown(warning)}", style="red")
    found = sheets(report)
    for place, sheet in enumerate(found):
        yield Text("")
        yield _grid(sheet)
        if sheet.note and (place + 1 == len(found) or found[place + 1].kind != sheet.kind):
            yield Padding(Text(sheet.note, style="dim"), (0, 1))
    yield Text("")
    for name, text in prose.origin(report).items():
        yield Text(f"{name}: {shown(text)}", style="dim")
    if prose.missing(report):
        for line in prose.failures(report):
            yield Text(f"failed: {shown(line)}", style="red")
        yield Text(f"{prose.missing(report)} {report.command}")


def plain_text(report: TableReport, width: int = WIDTH) -> str:
    """Return the report as plain text of a width."""
    page = StringIO()
    console = Console(file=page, width=width, color_system=None, legacy_windows=False)
    for part in terminal(report):
        console.print(part, highlight=False)
    lines = (line.rstrip() for line in page.getvalue().splitlines())
    return "\n".join(lines).strip("\n") + "\n"


def _grid(sheet: Sheet) -> Grid:
    grid = Grid(
        title=Text(shown(sheet.title), style="bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for place, name in enumerate(sheet.columns):
        left = place < sheet.names
        grid.add_column(
            Text(shown(name)),
            justify="left" if left else "right",
            no_wrap=place == 0,
            overflow="fold",
        )
    for line in sheet.lines:
        grid.add_row(*(_field(field) for field in line))
    return grid


def _field(field: Field) -> Text:
    mark = "* " if field.best else ""  # seen without bold letters as well
    text = Text(mark + shown(field.text), style="bold" if field.best else "")
    for line in field.below:
        text.append(f"\n{shown(line)}", style="dim")
    return text
