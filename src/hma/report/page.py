"""Pages of a run and of several seeds: one HTML file each that needs nothing but itself."""

from functools import partial
from pathlib import Path
from typing import Any

from hma.io.files import atomic_write
from hma.metrics import METRICS
from hma.report import charts, memory_views, numbers, score_views, seeds, verdict
from hma.report.html import inline_png, template
from hma.report.run_report import MEMORY, RunReport
from hma.report.seeds import SeedsReport
from hma.targets import Number, Target, YesNo

LABEL_KINDS: dict[type[Target], str] = {Number: "number", YesNo: "labels"}
"""Template for what is shown of each kind of label besides scores; of others that of classes."""


def render(report: RunReport | SeedsReport) -> str:
    """Return the page; the same report gives the same bytes.

    It makes no request, runs no script and forbids both by its own policy. Every text of the
    report is escaped.
    """
    several = isinstance(report, SeedsReport)
    found = template(f"templates/{'seeds' if several else 'run'}.html.j2")
    page: str = found.render(
        report=report,
        numbers=numbers,
        inline_png=inline_png,
        metrics=METRICS,
        charts=charts,
        results=score_views,
        memory=memory_views,
        verdict=verdict,
        **(_of_seeds(report) if isinstance(report, SeedsReport) else _of_run(report)),
    )
    return page


def write_page(report: RunReport | SeedsReport, path: str | Path) -> None:
    """Write the page whole or not at all; a page that was there stays until then."""
    target = Path(path)
    page = render(report).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as temporary:
        temporary.write_bytes(page)


def _of_seeds(report: SeedsReport) -> dict[str, Any]:
    return {"layout": seeds, "judge": partial(seeds.seeds_verdict, report)}


def _of_run(report: RunReport) -> dict[str, Any]:
    return {
        "label_kind": LABEL_KINDS.get(type(report.target), "classes"),
        "group": "class" if report.groups == report.classes else "group",
        "own": next(r.context for r in report.tests[0].results if r.method == MEMORY),
        "options": _options(report),
        "advice": verdict.advice(report),
    }


def _options(report: RunReport) -> list[dict[str, Any]]:
    """Return one line for each option, its value under each method and whether they differ."""
    names = dict.fromkeys(name for values in report.options.values() for name in values)
    lines = []
    for name in names:
        values = [held.get(name, numbers.MISSING) for held in report.options.values()]
        lines.append({"name": name, "values": values, "differ": len(set(values)) > 1})
    return lines
