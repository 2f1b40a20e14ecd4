"""The report as sheets of text that every format lays out in its own way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hma.report import words
from hma.report.table import numbers
from hma.report.table.content import Entry, Group, Spread, TableReport
from hma.report.words import MISSING
from hma.tables import FULL


@dataclass(frozen=True)
class Field:
    """A field of a sheet: its text, smaller lines below it, and whether it is the best."""

    text: str
    below: tuple[str, ...] = ()
    best: bool = False


@dataclass(frozen=True)
class Sheet:
    """A small table of text.

    Args:
        kind: What it shows: 'overview', 'published', 'task', 'contexts', 'splits' or 'cost'.
        title: In a few words.
        columns: Their headings; the first ``names`` columns name a line.
        lines: Its fields.
        note: How to read it; empty if nothing needs saying.
        names: Number of columns that are names.
    """

    kind: str
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[Field, ...], ...]
    note: str = ""
    names: int = 1


def sheets(report: TableReport) -> tuple[Sheet, ...]:
    """Return every sheet of a report, the most important first."""
    found = [sheet for group in report.groups for sheet in _overview(report, group)]
    found += [sheet for group in report.groups for sheet in _published(report, group)]
    found += [
        _task(report, task)
        for group in report.groups
        for task in group.tasks
        if any(e.scores for (t, _), e in report.entries.items() if t == task)
    ]
    for group in report.groups:
        for tasks, labels, _ in _stretches(report, group):
            found += _contexts(report, group, tasks, labels)
            found += _splits(report, group, tasks, labels)
    found.append(_cost(report))
    return tuple(found)


def overviews(found: Sequence[Sheet]) -> list[Sheet]:
    """Return the sheets that show everything at a glance."""
    return [sheet for sheet in found if sheet.kind == "overview"]


def _stretches(
    report: TableReport, group: Group
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], bool]]:
    """Yield tasks and labels, as many at a time as fit, and whether they are the last."""
    wide = 4 if report.has_published else 5
    for start in range(0, len(group.tasks), wide):
        stop = start + wide
        last = stop >= len(group.tasks)
        yield group.tasks[start:stop], group.labels[start:stop], last


def _titled(what: str, group: Group) -> str:
    return f"{what}: {group.name}" if group.name else what


def _overview(report: TableReport, group: Group) -> Iterator[Sheet]:
    for tasks, labels, last in _stretches(report, group):
        averaged = last and bool(group.averages)
        lines = []
        for method in report.methods:
            fields = [_field(report, report.entries.get((task, method))) for task in tasks]
            if averaged:
                fields.append(_averaged(report, group, method))
            lines.append((Field(method), *fields))
        columns = ("method", *labels, *(("average",) if averaged else ()))
        yield Sheet(
            "overview",
            _titled(f"Measured, {numbers.NAMES[report.metric]}", group),
            columns,
            tuple(lines),
            _overview_note(report, averaged),
        )


def _overview_note(report: TableReport, averaged: bool) -> str:
    parts = ["Mean ± sample standard deviation over seeds."]
    if report.has_published:
        parts.append("In brackets: the paper's.")
    parts += _own_contexts(report)
    parts.append("Bold: the largest mean of a task, which need not be beyond chance.")
    if averaged:
        parts.append("Averages only where no task and no seed is missing.")
    return " ".join(parts)


def _own_contexts(report: TableReport) -> list[str]:
    """Say in which context rows are shown that were measured in several."""
    found: dict[str, dict[str, None]] = {}
    for (_, method), entry in report.entries.items():
        if entry.context is not None and len(entry.contexts) > 1:
            found.setdefault(entry.context, {})[method] = None
    return [f"{', '.join(rows)}: in context {context}." for context, rows in found.items()]


def _field(report: TableReport, entry: Entry | None) -> Field:
    """Return measured over published; nothing where nothing was asked for."""
    if entry is None:
        return Field("")
    below = [_count(entry)] if _count(entry) else []
    if entry.published is not None:
        below.append(f"[{numbers.printed(entry.published)}]")
    return Field(numbers.spread(report.metric, entry.measured), tuple(below), entry.best)


def _count(entry: Entry) -> str:
    """Return how many seeds there are where some are missing, and how many failed."""
    failed = f"{len(entry.failed)} failed" if entry.failed else ""
    count = numbers.part(len(entry.scores), entry.wanted) if entry.scores else ""
    return ", ".join(text for text in (count, failed) if text)


def _averaged(report: TableReport, group: Group, method: str) -> Field:
    found = group.averages[method]
    below = () if found.published is None else (f"[{found.published:.2f}]",)
    return Field(numbers.spread(report.metric, found.measured), below)


def _published(report: TableReport, group: Group) -> Iterator[Sheet]:
    """Yield published and measured side by side, one line for each task and row."""
    if not report.has_published:
        return
    lines: list[tuple[Field, ...]] = []
    for task, label in zip(group.tasks, group.labels, strict=True):
        for method in report.methods:
            entry = report.entries.get((task, method))
            if entry is not None:
                lines.append(_published_line(report, label, method, entry, lines))
    if group.averages:
        for method, found in group.averages.items():
            published = MISSING if found.published is None else f"{found.published:.2f}"
            measured = numbers.spread(report.metric, found.measured)
            difference = _signed(report.metric, found.difference)
            texts = (_once("average", lines), method, published, measured, "", difference)
            lines.append(tuple(Field(text) for text in texts))
    columns = ("task", "method", "published", "measured", "seeds", "difference")
    title = _titled("Published and measured", group)
    note = "Difference: measured minus published."
    if report.budget != FULL:
        note += (
            f" The budget {report.budget} is less than the paper's protocol, so the difference is "
            "not one of the methods."
        )
    yield Sheet("published", title, columns, tuple(lines), note, names=2)


def _published_line(
    report: TableReport, label: str, method: str, entry: Entry, before: Sequence[tuple[Field, ...]]
) -> tuple[Field, ...]:
    return (
        Field(_once(label, before)),
        Field(method),
        Field(numbers.printed(entry.published)),
        Field(numbers.spread(report.metric, entry.measured), best=entry.best),
        Field(_seeds(entry)),
        Field(_signed(report.metric, entry.difference)),
    )


def _once(name: str, before: Sequence[tuple[Field, ...]]) -> str:
    """Return the name of a line, unless the lines before have it already."""
    shown = next((line[0].text for line in reversed(before) if line[0].text), None)
    return name if name != shown else ""


def _seeds(entry: Entry) -> str:
    failed = f", {len(entry.failed)} failed" if entry.failed else ""
    return f"{len(entry.scores)} of {entry.wanted}{failed}"


def _task(report: TableReport, task: str) -> Sheet:
    columns = ["method", "measured", "seeds", f"against {report.baseline}", "95% interval"]
    columns += ["pairs", "p", "p (Holm)"]
    lines = []
    for method in report.methods:
        entry = report.entries.get((task, method))
        if entry is not None:
            lines.append(_task_line(report, method, entry))
    note = (
        f"Against {report.baseline}: mean difference over the seeds that both have, percentile "
        "bootstrap interval of it, Wilcoxon signed-rank p (not corrected, and corrected after "
        "Holm for the rows of this task). With fewer than 6 pairs p cannot be below 0.05, and the "
        "interval is too narrow."
    )
    return Sheet("task", task, tuple(columns), tuple(lines), note)


def _task_line(report: TableReport, method: str, entry: Entry) -> tuple[Field, ...]:
    metric = report.metric
    measured = Field(numbers.spread(metric, entry.measured), best=entry.best)
    texts = [_seeds(entry)]
    pair = entry.paired
    if pair is not None:
        texts += [
            _signed(metric, pair.difference),
            numbers.ends(metric, pair.low, pair.high),
            str(pair.pairs),
            numbers.probability(pair.p),
            numbers.probability(pair.p_holm),
        ]
    else:
        texts += ["" if method == report.baseline else MISSING] * 5
    return (Field(method), measured, *(Field(text) for text in texts))


def _signed(metric: str, value: float | None) -> str:
    return MISSING if value is None else numbers.amount(metric, value, signed=True)


def _contexts(
    report: TableReport, group: Group, tasks: Sequence[str], labels: Sequence[str]
) -> Iterator[Sheet]:
    """Yield the rows whose answers depend on what else is in the batch, in every context."""
    lines: list[tuple[Field, ...]] = []
    for method in report.methods:
        entries = [report.entries.get((task, method)) for task in tasks]
        names = dict.fromkeys(c for entry in entries if entry for c in entry.contexts)
        for context in names if len(names) > 1 else ():
            found = [entry.contexts.get(context) if entry else None for entry in entries]
            lines.append(_named_line(report, method, context, found, lines))
    if lines:
        yield Sheet(
            "contexts",
            _titled("What rows see at test", group),
            ("method", "context", *labels),
            tuple(lines),
            "batch: the rest of a shuffled batch, as in the tables above; batch-sorted: of a batch "
            "in the order of the file; alone: nothing but itself and the memories.",
            names=2,
        )


def _splits(
    report: TableReport, group: Group, tasks: Sequence[str], labels: Sequence[str]
) -> Iterator[Sheet]:
    if len(report.splits) < 2:
        return
    lines: list[tuple[Field, ...]] = []
    for method in report.methods:
        entries = [report.entries.get((task, method)) for task in tasks]
        for split in report.splits:
            found = [entry.splits.get(split) if entry else None for entry in entries]
            if any(found):
                lines.append(_named_line(report, method, split, found, lines))
    if lines:
        yield Sheet(
            "splits",
            _titled("Each test set", group),
            ("method", "test set", *labels),
            tuple(lines),
            f"The tables above have the mean of {' and '.join(report.splits)}.",
            names=2,
        )


def _named_line(
    report: TableReport,
    method: str,
    name: str,
    found: Sequence[Spread | None],
    before: Sequence[tuple[Field, ...]],
) -> tuple[Field, ...]:
    fields = [Field(numbers.spread(report.metric, spread)) for spread in found]
    return (Field(_once(method, before)), Field(name), *fields)


def _cost(report: TableReport) -> Sheet:
    lines = []
    for method, cost in report.costs.items():
        texts = [
            report.methods[method],
            f"{cost.records} of {cost.wanted}",
            str(cost.failed) if cost.failed else "",
            words.duration(cost.seconds),
            words.size(cost.peak_memory_bytes),
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
