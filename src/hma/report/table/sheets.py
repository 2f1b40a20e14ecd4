"""What is measured, beside what is published and against the baseline, as sheets of text."""

from collections.abc import Iterator, Sequence

from hma.metrics import METRICS
from hma.paper.table import FULL
from hma.report.numbers import MISSING, probability
from hma.report.table import scores
from hma.report.table.beside import beside_sheets
from hma.report.table.candidate_sheets import candidate_sheets
from hma.report.table.check_sheets import check_sheets
from hma.report.table.coverage_sheet import coverage_sheet
from hma.report.table.detail_sheets import cost_sheet, detail_sheets
from hma.report.table.edge_hit_sheet import edge_hit_sheet
from hma.report.table.permuted import permuted_sheet
from hma.report.table.rank_views import rank_sheet
from hma.report.table.sheet import Field, Sheet, named_once, titled
from hma.report.table.step_cost_sheets import step_cost_sheets
from hma.report.table.table_report import Entry, Group, TableReport


def sheets(report: TableReport) -> tuple[Sheet, ...]:
    """Return every sheet of a report, the most important first."""
    if report.deployments:
        return (*candidate_sheets(report), cost_sheet(report))
    if report.step_costs:
        return (*step_cost_sheets(report),)
    found = [sheet for group in report.groups for sheet in _overview(report, group)]
    found += [rank_sheet(report.ranks)] if report.ranks else []
    found += [sheet for group in report.groups for sheet in _published(report, group)]
    found += [
        _task(report, task)
        for group in report.groups
        for task in group.tasks
        if any(e.scores for (t, _), e in report.entries.items() if t == task)
    ]
    for group in report.groups:
        for tasks, labels, _ in _stretches(report, group):
            found += detail_sheets(report, group, tasks, labels)
    found += beside_sheets(report)
    found += check_sheets(report)
    found += [permuted_sheet(report)] if report.permuted else []
    found += [edge_hit_sheet(report)] if report.edge_hits else []
    found += [coverage_sheet(report)] if report.coverages else []
    found.append(cost_sheet(report))
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


def _overview(report: TableReport, group: Group) -> Iterator[Sheet]:
    for tasks, labels, last in _stretches(report, group):
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
            titled(f"Measured, {scores.title(report.metric)}", group),
            columns,
            tuple(lines),
            _overview_note(report, averaged),
        )


def _overview_note(report: TableReport, averaged: bool) -> str:
    parts = ["Mean ± sample standard deviation over seeds."]
    if report.has_published:
        parts.append("In brackets: the paper's.")
    parts += _own_contexts(report)
    best = "largest" if METRICS[report.metric].larger_is_better else "smallest"
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
    return Field(scores.spread(report.metric, entry.measured), tuple(below), entry.best)


def _count(entry: Entry) -> str:
    """Return how many seeds there are where some are missing, and how many failed."""
    failed = f"{len(entry.failed)} failed" if entry.failed else ""
    count = scores.part(len(entry.scores), entry.wanted) if entry.scores else ""
    return ", ".join(text for text in (count, failed) if text)


def _averaged(report: TableReport, group: Group, method: str) -> Field:
    found = group.averages[method]
    below = () if found.published is None else (f"[{found.published:.2f}]",)
    return Field(scores.spread(report.metric, found.measured), below)


def _published(report: TableReport, group: Group) -> Iterator[Sheet]:
    """Yield published and measured side by side, one line for each task and row."""
    if not report.has_published:
        return
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
            measured = scores.spread(report.metric, found.measured)
            difference = scores.amount(report.metric, found.difference, sign="+")
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
    yield Sheet("published", title, columns, tuple(lines), note, names=2)


def _published_line(
    report: TableReport, label: str, method: str, entry: Entry, before: Sequence[tuple[Field, ...]]
) -> tuple[Field, ...]:
    return (
        Field(named_once(label, before)),
        Field(method),
        Field(scores.printed(entry.published)),
        Field(scores.spread(report.metric, entry.measured), best=entry.best),
        Field(_seeds(entry)),
        Field(scores.amount(report.metric, entry.difference, sign="+")),
    )


def _tried(report: TableReport, entry: Entry) -> bool:
    """Tell whether a cell ran; before any did, what is to come is shown."""
    return bool(entry.scores or entry.failed) or not report.records


def _seeds(entry: Entry) -> str:
    failed = f", {len(entry.failed)} failed" if entry.failed else ""
    return f"{len(entry.scores)} of {entry.wanted}{failed}"


def _task(report: TableReport, task: str) -> Sheet:
    columns = ["method", "measured", "seeds", f"against {report.baseline}", "95% interval"]
    columns += ["pairs", "p", "p (Holm)"]
    lines = []
    for method in report.methods:
        entry = report.entries.get((task, method))
        if entry is not None and _tried(report, entry):
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
        texts += ["" if method == report.baseline else MISSING] * 5
    return (Field(method), measured, *(Field(text) for text in texts))
