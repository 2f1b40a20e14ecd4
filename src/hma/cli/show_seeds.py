"""A comparison over seeds as tables for the terminal."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hma.report.numbers import counted
from hma.report.seeds import SeedsReport, Sheet, rows_of, sheets


def seed_tables(report: SeedsReport) -> Iterator[Table]:
    """Yield a table for each test set and metric: candidates, means, paired differences."""
    seeds = counted(len(report.seeds), "seed")
    for trial in report.tests:
        for sheet in sheets(report, trial):
            where = f" on {trial.name}" if len(report.tests) > 1 else ""
            name = f"{sheet.title[:1].upper()}{sheet.title[1:]}"
            yield _table(f"{name}{where} over {seeds} ({rows_of(trial)})", sheet)


def _table(title: str, sheet: Sheet) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("candidate")
    columns = ["mean", "sd"]
    columns += ["minus\nplain backbone"] * sheet.compared
    columns += [f"minus\n{sheet.simple}"] * (sheet.simple is not None)
    for name in columns:
        table.add_column(name, justify="right")
    for line in sheet.lines:
        cells = [line.mean, line.deviation]
        cells += [_difference(*line.to_plain)] * sheet.compared
        cells += [_difference(*line.to_simple)] * (sheet.simple is not None)
        table.add_row(line.name, *cells)
    return table


def _difference(value: str, ends: str) -> str:
    return f"{value}\n{ends}" if ends else value
