"""What is measured, as sheets of text: beside what is published, and against the baseline."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hma.metrics import METRICS
from hma.paper.report import scores
from hma.paper.report.candidates import CANDIDATES, candidate_sheets
from hma.paper.report.measures import (
    beside_sheets,
    coverage_sheets,
    edge_hit_sheets,
    permuted_sheets,
)
from hma.paper.report.ranks import rank_sheets
from hma.paper.report.scores import Spread
from hma.paper.report.step_costs import step_cost_sheets
from hma.paper.report.table_report import (
    Entry,
    Field,
    Group,
    Sheet,
    TableReport,
    named_once,
    titled,
)
from hma.paper.step_costs import STEP_COSTS
from hma.paper.table import FULL
from hma.report import numbers
from hma.report.numbers import MISSING, probability

Section = Callable[[TableReport], Iterator[Sheet]]
"""A part of a report: its sheets, none where there is nothing to show."""


def sheets(report: TableReport) -> tuple[Sheet, ...]:
    """Return every sheet of a report, the most important first."""
    return tuple(sheet for section in _sections(report) for sheet in section(report))


def _sections(report: TableReport) -> tuple[Section, ...]:
    """Return what the table's records have to show, in order."""
    if any(CANDIDATES in record.measures for record in report.held.values()):
        return (candidate_sheets, cost_sheets)
    if any(STEP_COSTS in record.measures for record in report.held.values()):
        return (step_cost_sheets,)
    return (
        overview_sheets,
        rank_sheets,
        published_sheets,
        task_sheets,
        detail_sheets,
        beside_sheets,
        check_sheets,
        permuted_sheets,
        edge_hit_sheets,
        coverage_sheets,
        cost_sheets,
    )


def overviews(found: Sequence[Sheet]) -> list[Sheet]:
    """Return the sheets that show everything at a glance."""
    return [sheet for sheet in found if sheet.kind == "overview"]


def _stretches(
    report: TableReport,
) -> Iterator[tuple[Group, tuple[str, ...], tuple[str, ...], bool]]:
    """Yield tasks of a group and labels, as many at a time as fit, and whether they end it."""
    wide = 4 if report.has_published else 5
    for group in report.groups:
        for start in range(0, len(group.tasks), wide):
            stop = start + wide
            last = stop >= len(group.tasks)
            yield group, group.tasks[start:stop], group.labels[start:stop], last


def overview_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield mean scores, rows down and tasks across."""
    for group, tasks, labels, last in _stretches(report):
        averaged = last and bool(group.averages)
        lines = []
        for method in report.shown:
            fields = [_field(report, report.entries.get((task, method))) for task in tasks]
            if averaged:
                fields.append(_averaged(report, group, method))
            lines.append((Field(method), *fields))
        columns = ("method", *labels, *(("average",) if averaged else ()))
        yield Sheet(
            "overview",
            titled(f"Measured, {scores.title(report.table.metric)}", group),
            columns,
            tuple(lines),
            _overview_note(report, averaged),
        )


def _overview_note(report: TableReport, averaged: bool) -> str:
    parts = ["Mean ± sample standard deviation over seeds."]
    if report.has_published:
        parts.append("In brackets: the paper's.")
    parts += _own_contexts(report)
    best = "largest" if METRICS[report.table.metric].larger_is_better else "smallest"
    parts.append(f"Bold: the {best} mean of a task, which need not be beyond chance.")
    if averaged:
        parts.append("Averages only where no task and no seed is missing.")
    left_out = [method for method in report.methods if method not in report.shown]
    if left_out:
        parts.append(f"Neither measured nor published: {', '.join(left_out)}.")
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
        below.append(f"[{scores.printed(entry.published)}]")
    return Field(scores.spread(report.table.metric, entry.measured), tuple(below), entry.best)


def _count(entry: Entry) -> str:
    """Return how many seeds there are where some are missing, and how many failed."""
    failed = f"{len(entry.failed)} failed" if entry.failed else ""
    count = scores.part(len(entry.scores), entry.wanted) if entry.scores else ""
    return ", ".join(text for text in (count, failed) if text)


def _averaged(report: TableReport, group: Group, method: str) -> Field:
    found = group.averages[method]
    below = () if found.published is None else (f"[{found.published:.2f}]",)
    return Field(scores.spread(report.table.metric, found.measured), below)


def published_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield published and measured side by side, one line for each task and row."""
    for group in report.groups if report.has_published else ():
        yield _published(report, group)


def _published(report: TableReport, group: Group) -> Sheet:
    lines: list[tuple[Field, ...]] = []
    for task, label in zip(group.tasks, group.labels, strict=True):
        for method in report.methods:
            entry = report.entries.get((task, method))
            if entry is not None and (entry.published is not None or _tried(report, entry)):
                lines.append(_published_line(report, label, method, entry, lines))
    if group.averages:
        for method in report.shown:
            found = group.averages[method]
            published = MISSING if found.published is None else f"{found.published:.2f}"
            measured = scores.spread(report.table.metric, found.measured)
            difference = scores.amount(report.table.metric, found.difference, sign="+")
            texts = (named_once("average", lines), method, published, measured, "", difference)
            lines.append(tuple(Field(text) for text in texts))
    columns = ("task", "method", "published", "measured", "seeds", "difference")
    title = titled("Published and measured", group)
    note = "Difference: measured minus published."
    if report.budget not in FULL:
        note += (
            f" The budget {report.budget} is less than the paper's protocol, so the difference is "
            "not one of the methods."
        )
    return Sheet("published", title, columns, tuple(lines), note, names=2)


def _published_line(
    report: TableReport, label: str, method: str, entry: Entry, before: Sequence[tuple[Field, ...]]
) -> tuple[Field, ...]:
    return (
        Field(named_once(label, before)),
        Field(method),
        Field(scores.printed(entry.published)),
        Field(scores.spread(report.table.metric, entry.measured), best=entry.best),
        Field(_seeds(entry)),
        Field(scores.amount(report.table.metric, entry.difference, sign="+")),
    )


def _tried(report: TableReport, entry: Entry) -> bool:
    """Tell whether a cell ran; before any did, what is to come is shown."""
    return bool(entry.scores or entry.failed) or not report.records


def _seeds(entry: Entry) -> str:
    failed = f", {len(entry.failed)} failed" if entry.failed else ""
    return f"{len(entry.scores)} of {entry.wanted}{failed}"


def task_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield each task that has a score: its rows against the baseline."""
    measured = {task for (task, _), entry in report.entries.items() if entry.scores}
    for task in report.tasks:
        if task in measured:
            yield _task(report, task)


def _task(report: TableReport, task: str) -> Sheet:
    columns = ["method", "measured", "seeds", f"against {report.table.baseline}", "95% interval"]
    columns += ["pairs", "p", "p (Holm)"]
    lines = []
    for method in report.methods:
        entry = report.entries.get((task, method))
        if entry is not None and _tried(report, entry):
            lines.append(_task_line(report, method, entry))
    note = (
        f"Against {report.table.baseline}: mean difference over the seeds that both have, "
        "percentile bootstrap interval of it, Wilcoxon signed-rank p (not corrected, and corrected "
        "after Holm for the rows of this task). With fewer than 6 pairs p cannot be below 0.05, "
        "and the interval is too narrow."
    )
    return Sheet("task", task, tuple(columns), tuple(lines), note)


def _task_line(report: TableReport, method: str, entry: Entry) -> tuple[Field, ...]:
    metric = report.table.metric
    measured = Field(scores.spread(metric, entry.measured), best=entry.best)
    texts = [_seeds(entry)]
    pair = entry.paired
    if pair is not None:
        texts += [
            scores.amount(metric, pair.difference, sign="+"),
            scores.ends(metric, pair.low, pair.high),
            str(pair.pairs),
            probability(pair.p),
            probability(pair.p_holm),
        ]
    else:
        texts += ["" if method == report.table.baseline else MISSING] * 5
    return (Field(method), measured, *(Field(text) for text in texts))


def detail_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield the rows measured in several contexts, and each test set where there are several."""
    for group, tasks, labels, _ in _stretches(report):
        held = {m: [report.entries.get((task, m)) for task in tasks] for m in report.methods}
        by_context = {m: [e.contexts if e else {} for e in each] for m, each in held.items()}
        contexts = _lines(report, by_context, least=2)
        if contexts:
            columns = ("method", "context", *labels)
            title, note = titled("What rows see at test", group), _contexts_note(contexts)
            yield Sheet("contexts", title, columns, contexts, note, names=2)
        by_split = {m: [e.splits if e else {} for e in each] for m, each in held.items()}
        splits = _lines(report, by_split)
        if len(report.splits) > 1 and splits:
            columns = ("method", "test set", *labels)
            title = titled("Each test set", group)
            note = f"The tables above have the mean of {' and '.join(report.splits)}."
            yield Sheet("splits", title, columns, splits, note, names=2)


def _contexts_note(lines: Sequence[Sequence[Field]]) -> str:
    note = (
        "batch: the rest of a shuffled batch, as in the tables above; batch-sorted: of a batch in "
        "the order of the file; alone: nothing but itself and the memories"
    )
    anchors = any(line[1].text == "anchors" for line in lines)
    return f"{note}; anchors: the same training rows for all." if anchors else f"{note}."


def _lines(
    report: TableReport,
    found: Mapping[str, Sequence[Mapping[str, Spread]]],
    least: int = 1,
) -> tuple[tuple[Field, ...], ...]:
    """Return a line for each method and name, of the methods that have ``least`` names."""
    lines: list[tuple[Field, ...]] = []
    for method, held in found.items():
        names = dict.fromkeys(name for spreads in held for name in spreads)
        for name in names if len(names) >= least else ():
            fields = [
                Field(scores.spread(report.table.metric, spreads.get(name))) for spreads in held
            ]
            lines.append((Field(named_once(method, lines)), Field(name), *fields))
    return tuple(lines)


def cost_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield what each row of the table is and what it took."""
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
    yield Sheet(
        "cost",
        "Rows and what they took",
        ("method", "what", "measured", "failed", "time", "peak memory"),
        tuple(lines),
        "Mean time of a cell over all its tasks and seeds, on whatever ran it, with one thread; "
        "largest peak of memory, of the whole process.",
        names=2,
    )


def check_sheets(report: TableReport) -> Iterator[Sheet]:
    """Yield a sheet for each picture that has numbers, a line for each number."""
    columns = ("task, row", "number", "measured", "by chance", "")
    for scene in report.scenes:
        lines: list[tuple[Field, ...]] = []
        for check in scene.checks:
            texts = (check.what, check.measured, check.chance, check.outcome)
            lines.append((Field(named_once(check.where, lines)), *map(Field, texts)))
        if lines:
            title = f"{scene.title}: checked"
            yield Sheet("checks", title, columns, tuple(lines), scene.about, names=2)
