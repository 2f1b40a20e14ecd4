"""Other metrics than the one a table is about: another may say that a difference is none."""

from collections.abc import Mapping, Sequence

from hma.paper.table import Cell
from hma.report.numbers import MISSING
from hma.report.table import scores
from hma.report.table.pairing import spread_of
from hma.report.table.record_scores import contexts_of, score
from hma.report.table.sheet import Field, Sheet
from hma.report.table.table_report import Place, Spread, TableReport
from hma.training import Record


def beside_of(
    records: Mapping[Cell, Record], metrics: Sequence[str]
) -> dict[str, dict[Place, Spread]]:
    """Return each metric by task and row, over seeds, in the row's own context."""
    found: dict[str, dict[Place, Spread]] = {}
    for metric in metrics:
        values: dict[Place, list[float]] = {}
        for cell, record in records.items():
            own = score(record, metric, contexts_of(record)[0])
            values.setdefault((cell.task, cell.method), []).append(own)
        spreads = {place: spread_of(each) for place, each in values.items()}
        found[metric] = {place: one for place, one in spreads.items() if one is not None}
    return found


def beside_sheets(report: TableReport) -> list[Sheet]:
    """Return a sheet for each metric, rows down and tasks across."""
    tasks = [task for group in report.groups for task in group.tasks]
    return [
        Sheet(
            "beside",
            f"Beside it, {scores.title(metric)}",
            ("method", *tasks),
            tuple(
                (Field(method), *(_field(metric, held, (task, method)) for task in tasks))
                for method in report.methods
            ),
            f"Epochs are selected by {scores.title(report.metric)} all the same."
            if report.selected_by_metric
            else "",
        )
        for metric, held in report.beside.items()
        if held
    ]


def _field(metric: str, held: Mapping[Place, Spread], place: Place) -> Field:
    found = held.get(place)
    return Field(MISSING if found is None else scores.spread(metric, found))
