"""Sheets below the others: every context, every test set, what it all took."""

from collections.abc import Iterator, Mapping, Sequence

from hma.report import numbers
from hma.report.table import scores
from hma.report.table.sheet import Field, Sheet, named_once, titled
from hma.report.table.table_report import Group, Spread, TableReport


def detail_sheets(
    report: TableReport, group: Group, tasks: Sequence[str], labels: Sequence[str]
) -> Iterator[Sheet]:
    """Yield the rows measured in several contexts, and each test set where there are several."""
    entries = [
        (method, [report.entries.get((task, method)) for task in tasks])
        for method in report.methods
    ]
    contexts = _lines(
        report, [(m, [e.contexts if e else {} for e in held]) for m, held in entries], least=2
    )
    if contexts:
        yield Sheet(
            "contexts",
            titled("What rows see at test", group),
            ("method", "context", *labels),
            contexts,
            _contexts_note(contexts),
            names=2,
        )
    splits = _lines(report, [(m, [e.splits if e else {} for e in held]) for m, held in entries])
    if len(report.splits) > 1 and splits:
        yield Sheet(
            "splits",
            titled("Each test set", group),
            ("method", "test set", *labels),
            splits,
            f"The tables above have the mean of {' and '.join(report.splits)}.",
            names=2,
        )


def _contexts_note(lines: Sequence[Sequence[Field]]) -> str:
    note = (
        "batch: the rest of a shuffled batch, as in the tables above; batch-sorted: of a batch in "
        "the order of the file; alone: nothing but itself and the memories"
    )
    anchors = any(line[1].text == "anchors" for line in lines)
    return f"{note}; anchors: the same training rows for all." if anchors else f"{note}."


def _lines(
    report: TableReport,
    found: Sequence[tuple[str, Sequence[Mapping[str, Spread]]]],
    least: int = 1,
) -> tuple[tuple[Field, ...], ...]:
    """Return a line for each method and name, of the methods that have ``least`` names."""
    lines: list[tuple[Field, ...]] = []
    for method, held in found:
        names = dict.fromkeys(name for spreads in held for name in spreads)
        for name in names if len(names) >= least else ():
            fields = [Field(scores.spread(report.metric, spreads.get(name))) for spreads in held]
            lines.append((Field(named_once(method, lines)), Field(name), *fields))
    return tuple(lines)


def cost_sheet(report: TableReport) -> Sheet:
    """Return what each row of the table is and what it took."""
    lines = []
    for method, cost in report.costs.items():
        if method in report.unmeasured:
            continue
        texts = [
            report.methods[method],
            f"{cost.records} of {cost.wanted}",
            str(cost.failed) if cost.failed else "",
            numbers.duration(cost.seconds),
            numbers.size(cost.peak_memory_bytes),
        ]
        lines.append(tuple(Field(text) for text in (method, *texts)))
    return Sheet(
        "cost",
        "Rows and what they took",
        ("method", "what", "measured", "failed", "time", "peak memory"),
        tuple(lines),
        "Mean time of a cell over all its tasks and seeds, on whatever ran it, with one thread; "
        "largest peak of memory, of the whole process.",
        names=2,
    )
