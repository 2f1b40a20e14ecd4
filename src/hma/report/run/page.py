"""The page of a run: one HTML file that needs nothing but itself."""

from pathlib import Path
from typing import Any

from hma.files import written_whole
from hma.report import numbers
from hma.report.html import template
from hma.report.run import verdict
from hma.report.run.run_report import MEMORY, RunReport


def render(report: RunReport) -> str:
    """Return the page; the same report gives the same bytes.

    It makes no request, runs no script and forbids both by its own policy. Every text of the
    report is escaped.
    """
    found = template("run/templates/page.html.j2")
    from hma.report.run import memory_views, score_views  # they draw with markupsafe, of jinja2

    page: str = found.render(
        report=report,
        own=next(r.context for r in report.tests[0].results if r.method == MEMORY),
        options=_options(report),
        numbers=numbers,
        verdict=verdict,
        results=score_views,
        memory=memory_views,
    )
    return page


def write_page(report: RunReport, path: str | Path) -> None:
    """Write the page whole or not at all; a page that was there stays until then."""
    target = Path(path)
    page = render(report).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(target) as temporary:
        temporary.write_bytes(page)


def _options(report: RunReport) -> list[dict[str, Any]]:
    """Return one line for each option, its value under each method and whether they differ."""
    names = dict.fromkeys(name for values in report.options.values() for name in values)
    lines = []
    for name in names:
        values = [held.get(name, numbers.MISSING) for held in report.options.values()]
        lines.append({"name": name, "values": values, "differ": len(set(values)) > 1})
    return lines
