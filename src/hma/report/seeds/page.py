"""The page of several seeds: one HTML file that needs nothing but itself."""

from pathlib import Path

from hma.io.files import atomic_write
from hma.metrics import METRICS
from hma.report import numbers
from hma.report.html import template
from hma.report.run.verdict import amount
from hma.report.seeds import layout
from hma.report.seeds.seeds_report import SeedsReport
from hma.report.seeds.verdict import verdict


def render(report: SeedsReport) -> str:
    """Return the page; the same report gives the same bytes.

    It makes no request, runs no script and forbids both by its own policy. Every text of the
    report is escaped.
    """
    found = template("seeds/templates/page.html.j2")
    from hma.report.seeds.dots import dot_chart  # it draws with markupsafe, which is jinja2's

    page: str = found.render(
        report=report,
        verdict=verdict(report, report.tests[0]),
        each=verdict,
        layout=layout,
        dots=dot_chart,
        amount=amount,
        metrics=METRICS,
        numbers=numbers,
    )
    return page


def write_page(report: SeedsReport, path: Path) -> None:
    """Write the page whole or not at all; a page that was there stays until then."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(render(report).encode())
