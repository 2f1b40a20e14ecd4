"""The page of the tour: one HTML file that needs nothing but itself."""

from collections.abc import Sequence
from pathlib import Path

from hma.io.files import atomic_write
from hma.metrics import METRICS
from hma.questions.audit import Audit
from hma.quickstart.step import Line, Step, figure
from hma.report import memory_views, numbers
from hma.report.html import template


def write_tour_page(
    path: Path, steps: Sequence[Step], lines: Sequence[Line], audit: Audit, seeds: int
) -> None:
    """Write the page whole or not at all.

    Args:
        path: Where to.
        steps: What the steps found.
        lines: Of the table.
        audit: Shown with the step of its name.
        seeds: Behind the table.
    """
    page = render_tour(steps, lines, audit, seeds)
    with atomic_write(path) as temporary:
        temporary.write_bytes(page.encode())


def render_tour(steps: Sequence[Step], lines: Sequence[Line], audit: Audit, seeds: int) -> str:
    """Return the page; the same findings give the same bytes, and every text is escaped."""
    page: str = template("templates/tour.html.j2").render(
        steps=steps,
        lines=lines,
        audits={"test": audit},
        seeds=numbers.counted(seeds, "seed"),
        graphs=any(line.graphs is not None for line in lines),
        figure=figure,
        numbers=numbers,
        metrics=METRICS,
        memory=memory_views,
    )
    return page
