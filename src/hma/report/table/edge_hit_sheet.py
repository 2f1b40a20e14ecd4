"""Do rows look at the edges that the label is made of? Hits, beside chance and the baseline's."""

from collections.abc import Mapping

from hma.paper.edge_hits import EDGE_HITS
from hma.paper.table import Cell
from hma.report.table import scores
from hma.report.table.pairing import paired, spread_of
from hma.report.table.sheet import Field, Sheet, named_once
from hma.report.table.table_report import EdgeHits, Paired, TableReport
from hma.training import Record

BySeed = dict[int, float]
AS = "accuracy"
"""The metric that shares of edges are printed like."""


def edge_hits_of(
    records: Mapping[Cell, Record], baseline: str
) -> dict[tuple[str, str, str], EdgeHits]:
    """Return hits by task, test and row over seeds, in percent, where they were measured."""
    hits: dict[tuple[str, str, str], BySeed] = {}
    chance: dict[tuple[str, str, str], BySeed] = {}
    for cell, record in records.items():
        for test, found in record.measures.get(EDGE_HITS, {}).items():
            place = (cell.task, test, cell.method)
            hits.setdefault(place, {})[cell.seed] = 100 * found["hits"]
            chance.setdefault(place, {})[cell.seed] = 100 * found["chance"]
    made = {}
    for (task, test, method), own in hits.items():
        measured = spread_of(list(own.values()))
        by_chance = paired(own, chance[task, test, method])
        assert measured is not None
        assert by_chance is not None
        theirs = hits.get((task, test, baseline), {})
        against = None if method == baseline else paired(own, theirs)
        made[task, test, method] = EdgeHits(measured, by_chance, against)
    return made


def edge_hit_sheet(report: TableReport) -> Sheet:
    """Return a line for each task, test and row."""
    lines: list[tuple[Field, ...]] = []
    places = dict.fromkeys((task, test) for task, test, _ in report.edge_hits)
    for task, test in places:
        for method in report.methods:
            found = report.edge_hits.get((task, test, method))
            if found is None:
                continue
            texts = (
                scores.spread(AS, found.measured),
                _difference(found.over_chance),
                _difference(found.over_baseline),
            )
            name = named_once(f"{task}, {test}", lines)
            lines.append((Field(name), Field(method), *map(Field, texts)))
    return Sheet(
        "edge hits",
        "Edges that count",
        ("task, test", "method", "hits in %", "over chance", f"over {report.baseline}"),
        tuple(lines),
        "Share of the edges that the label is made of among as many edges with the highest scores: "
        "those by which a row chooses its part of a graph, else the gradient of the predicted "
        "logit. Mean over graphs, then mean ± sample standard deviation over seeds; differences "
        "with their 95% bootstrap interval over seeds.",
        names=2,
    )


def _difference(found: Paired | None) -> str:
    if found is None:
        return ""
    mean = scores.amount(AS, found.difference, sign="+")
    return f"{mean} ({scores.ends(AS, found.low, found.high)})"
