"""Pages of a run and of several seeds: one HTML file each that needs nothing but itself."""

from pathlib import Path
from typing import Any

from hma.io.files import atomic_write
from hma.report import sections
from hma.report.html import template
from hma.report.run_report import RunReport
from hma.report.sections.comparison import tiles
from hma.report.seeds import SeedsReport, rows_of, seed_sections, seeds_verdict
from hma.report.verdict import advice, verdict


def render(report: RunReport | SeedsReport) -> str:
    """Return the page; the same report gives the same bytes.

    It makes no request, runs no script and forbids both by its own policy. Every text of the
    report is escaped.
    """
    several = isinstance(report, SeedsReport)
    values = _of_seeds(report) if isinstance(report, SeedsReport) else _of_run(report)
    page: str = template("templates/report.html.j2").render(
        report=report, several=several, first=report.tests[0], **values
    )
    return page


def write_page(report: RunReport | SeedsReport, path: str | Path) -> None:
    """Write the page whole or not at all; a page that was there stays until then."""
    target = Path(path)
    page = render(report).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as temporary:
        temporary.write_bytes(page)


def _of_run(report: RunReport) -> dict[str, Any]:
    first = report.tests[0]
    drawn = [
        (section.key, section.name, section.title, section.draw(report, report.parts[section.key]))
        for section in sections.SECTIONS
        if section.key in report.parts
    ]
    return {
        "found": verdict(report, first),
        "tiles": tiles(report, first),
        "advice": advice(report),
        "sections": drawn,
    }


def _of_seeds(report: SeedsReport) -> dict[str, Any]:
    return {
        "found": seeds_verdict(report, report.tests[0]),
        "rows": rows_of(report.tests[0]),
        "advice": (),
        "sections": seed_sections(report),
    }
