"""Are promises kept? What sets cover, and which rows are called unknown, beside what was asked."""

from collections.abc import Mapping

from hma.paper.table import Cell
from hma.report.table import scores
from hma.report.table.pairing import spread_of
from hma.report.table.sheet import Field, Sheet, named_once
from hma.report.table.table_report import Coverage, Spread, TableReport
from hma.training import Record

MEASURE = "coverage"
"""Of a record: what thresholds of its validation rows came to on its test rows."""
AS = "accuracy"
"""The metric that shares of rows are printed like."""


def coverages_of(records: Mapping[Cell, Record]) -> dict[tuple[str, str], Coverage]:
    """Return what was promised and kept by task and row over seeds, where it was measured."""
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for cell, record in records.items():
        if MEASURE in record.measures:
            found.setdefault((cell.task, cell.method), []).append(record.measures[MEASURE])
    return {place: _coverage(of_seeds) for place, of_seeds in found.items()}


def _coverage(of_seeds: list[Mapping[str, float]]) -> Coverage:
    def over_seeds(name: str, unit: float = 100.0) -> Spread:
        found = spread_of([unit * one[name] for one in of_seeds])
        assert found is not None
        return found

    return Coverage(
        asked=100 * of_seeds[0]["asked"],
        sets=over_seeds("of sets"),
        set_size=over_seeds("labels in a set", 1.0),
        accepted=over_seeds("of known rows accepted"),
        rejected=over_seeds("of strange rows rejected"),
        sets_within=sum(bool(one["scores are within"]) for one in of_seeds),
        accepted_within=sum(bool(one["accepted is within"]) for one in of_seeds),
    )


def coverage_sheet(report: TableReport) -> Sheet:
    """Return a line for each task and row."""
    lines: list[tuple[Field, ...]] = []
    places = [(t, m) for group in report.groups for t in group.tasks for m in report.methods]
    for task, method in places:
        found = report.coverages.get((task, method))
        if found is None:
            continue
        seeds = found.sets.count
        texts = (
            scores.spread(AS, found.sets),
            f"{found.set_size.mean:.2f}",
            f"{found.sets_within} of {seeds}",
            scores.spread(AS, found.accepted),
            f"{found.accepted_within} of {seeds}",
            scores.spread(AS, found.rejected),
        )
        name = named_once(task, lines)
        lines.append((Field(name), Field(method), *map(Field, texts)))
    (asked, *others) = dict.fromkeys(one.asked for one in report.coverages.values())
    assert not others
    return Sheet(
        "coverage",
        f"Coverage, {asked:g}% asked for",
        (
            "task",
            "method",
            "sets hold the label, %",
            "labels in a set",
            "scores within",
            "known rows accepted, %",
            "accepted within",
            "unknown classes rejected, %",
        ),
        tuple(lines),
        "Thresholds are of validation rows, shares of test rows; mean ± sample standard deviation "
        "over seeds. Within: in how many seeds the share lies in the interval that has 95 of 100 "
        "seeds if validation and test rows are drawn alike. It is the scores that are held to it: "
        "a set has the likeliest class besides, so sets hold the label more often.",
        names=2,
    )
