"""The report as one HTML page that needs nothing but itself."""

from collections.abc import Mapping
from statistics import median

from markupsafe import Markup

from hma.report import numbers
from hma.report.html import template
from hma.report.pictures.interactive import Examples, interactive, script, script_policy
from hma.report.table import scores, sentences
from hma.report.table.figures import figure, interval_bar
from hma.report.table.sheets import overviews, sheets
from hma.report.table.table_report import Entry, Paired, TableReport

NO_EXAMPLES = Examples({})


def page(report: TableReport, examples: Examples = NO_EXAMPLES) -> str:
    """Return the page; the same report gives the same bytes.

    It makes no request and forbids them by its own policy, which allows no script but the one of
    its pictures, where it has any. Every text of the report is escaped.

    Args:
        report: What it shows.
        examples: Rows of the data that its pictures point at.
    """
    found = sheets(report)
    drawn = {group.name: figure(report, group) for group in report.groups}
    text: str = template("table/templates/page.html.j2").render(
        report=report,
        figures={name: drawing for name, drawing in drawn.items() if drawing is not None},
        overviews=[*overviews(found), *(s for s in found if s.kind == "published")],
        tasks=[sheet for sheet in found if sheet.kind == "task"],
        others=[sheet for sheet in found if sheet.kind not in ("overview", "published", "task")],
        bars=_bars(report),
        pictures=interactive(report.scenes, examples),
        policy=script_policy(),
        script=script(),
        numbers=numbers,
        scores=scores,
        sentences=sentences,
    )
    return text


def _bars(report: TableReport) -> dict[str, list[Markup | str]]:
    """Return for each task the drawings of its differences, on one scale for all tasks."""
    pairs = [entry.paired for entry in report.entries.values() if entry.paired]
    reach = 2 * median(_reach(pair) for pair in pairs) if pairs else 0.0  # cuts off outliers
    found: dict[str, list[Markup | str]] = {}
    for (task, _), entry in _in_order(report).items():
        bar = interval_bar(entry.paired, reach or 1.0) if entry.paired else None
        found.setdefault(task, []).append(bar or "")
    return found


def _in_order(report: TableReport) -> Mapping[tuple[str, str], Entry]:
    return {
        (task, method): report.entries[task, method]
        for group in report.groups
        for task in group.tasks
        for method in report.methods
        if (task, method) in report.entries
    }


def _reach(pair: Paired) -> float:
    return max(abs(v) for v in (pair.difference, pair.low, pair.high) if v is not None)
