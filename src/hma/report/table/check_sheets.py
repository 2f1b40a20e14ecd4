"""The numbers that a table's pictures are checked by."""

from hma.report.table.sheet import Field, Sheet, named_once
from hma.report.table.table_report import TableReport


def check_sheets(report: TableReport) -> list[Sheet]:
    """Return a sheet for each picture that has numbers, a line for each number."""
    found = []
    for scene in report.scenes:
        lines: list[tuple[Field, ...]] = []
        for check in scene.checks:
            texts = (check.what, check.measured, check.chance, check.outcome)
            lines.append((Field(named_once(check.where, lines)), *map(Field, texts)))
        if lines:
            columns = ("task, row", "number", "measured", "by chance", "")
            found.append(
                Sheet("checks", f"{scene.title}: checked", columns, tuple(lines), scene.about, 2)
            )
    return found
