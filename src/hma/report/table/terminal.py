"""The report for a terminal, readable at 100 columns."""

from collections.abc import Iterator
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from hma.errors import printable
from hma.report.table import sentences
from hma.report.table.sheet import Field, Sheet
from hma.report.table.sheets import sheets
from hma.report.table.table_report import TableReport

WIDTH = 100


def terminal(report: TableReport) -> Iterator[RenderableType]:
    """Yield what to print, one after the other."""
    yield _text(f"{report.key}: {report.title}", "bold")
    yield _text(f"budget {report.budget}: {report.budget_what}. {sentences.state(report)}")
    for note in report.notes:
        yield _text(note)
    for warning in report.warnings:
        yield _text(f"! {warning}", "red")
    found = sheets(report)
    for place, sheet in enumerate(found):
        yield Text("")
        yield _grid(sheet)
        if sheet.note and (place + 1 == len(found) or found[place + 1].kind != sheet.kind):
            yield Padding(_text(sheet.note, "dim"), (0, 1))
    yield Text("")
    for name, text in sentences.origin(report).items():
        yield _text(f"{name}: {text}", "dim")
    if sentences.missing(report):
        for line in sentences.failures(report):
            yield _text(f"failed: {line}", "red")
        yield _text(f"{sentences.missing(report)} {report.command}")


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


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
        title=_text(sheet.title, "bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for place, name in enumerate(sheet.columns):
        left = place < sheet.names
        grid.add_column(
            _text(name),
            justify="left" if left else "right",
            no_wrap=place == 0,
            overflow="fold",
        )
    for line in sheet.lines:
        grid.add_row(*(_field(field) for field in line))
    return grid


def _field(field: Field) -> Text:
    mark = "* " if field.best else ""  # seen without bold letters as well
    text = _text(mark + field.text, "bold" if field.best else "")
    for line in field.below:
        text.append(f"\n{printable(line)}", style="dim")
    return text
