"""The page of a run: one HTML file that needs nothing but itself."""

from pathlib import Path
from typing import Any

from hma.io.files import atomic_write
from hma.metrics import METRICS
from hma.report import numbers
from hma.report.html import template
from hma.report.run import verdict
from hma.report.run.advice import advice
from hma.report.run.run_report import RunReport
from hma.report.run.trial import MEMORY
from hma.targets import Number, Target, YesNo

LABEL_KINDS: dict[type[Target], str] = {Number: "number", YesNo: "labels"}
"""Template for what is shown of each kind of label besides scores; of others that of classes."""


def render(report: RunReport) -> str:
    """Return the page; the same report gives the same bytes.

    It makes no request, runs no script and forbids both by its own policy. Every text of the
    report is escaped.
    """
    found = template("run/templates/page.html.j2")
    from hma.report.run import (  # they draw with markupsafe, which comes with jinja2
        class_views,
        label_views,
        memory_views,
        number_views,
        promise_views,
        score_views,
    )

    page: str = found.render(
        report=report,
        label_kind=LABEL_KINDS.get(type(report.target), "classes"),
        group="class" if report.groups == report.classes else "group",
        own=next(r.context for r in report.tests[0].results if r.method == MEMORY),
        options=_options(report),
        numbers=numbers,
        verdict=verdict,
        advice=advice(report),
        metrics=METRICS,
        results=score_views,
        classes=class_views,
        labels=label_views,
        number=number_views,
        memory=memory_views,
        promise=promise_views,
    )
    return page


def write_page(report: RunReport, path: str | Path) -> None:
    """Write the page whole or not at all; a page that was there stays until then."""
    target = Path(path)
    page = render(report).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as temporary:
        temporary.write_bytes(page)


def _options(report: RunReport) -> list[dict[str, Any]]:
    """Return one line for each option, its value under each method and whether they differ."""
    names = dict.fromkeys(name for values in report.options.values() for name in values)
    lines = []
    for name in names:
        values = [held.get(name, numbers.MISSING) for held in report.options.values()]
        lines.append({"name": name, "values": values, "differ": len(set(values)) > 1})
    return lines
