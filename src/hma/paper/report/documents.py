"""The folder of generated results: a Markdown document for each table, drawings, an index."""

from collections.abc import Iterable
from pathlib import Path

from hma.io.files import atomic_write
from hma.paper.report import gains
from hma.paper.report.drawing import figure, scene_drawing, standalone
from hma.paper.report.formats import escape_markdown, grid, markdown
from hma.paper.report.ranks import rank_chart, ranks_of
from hma.paper.report.summary import summarise
from hma.paper.report.table_report import TableReport
from hma.paper.report.verdict_page import CSV, PAGE, PaperVerdict, comma_separated, of_the_paper
from hma.paper.report.verdict_page import page as verdict_page
from hma.paper.results import Failure, Results
from hma.paper.table import BUDGETS, Cell, Table

INDEX = "README.md"


def report_of(
    table: Table,
    budget: str,
    results: Results,
    *,
    only: str | None = None,
    seeds: int | None = None,
) -> TableReport:
    """Return the report of what a folder of results holds; see :func:`summarise`."""
    cells = table.cells(budget, only, seeds)
    failures: dict[Cell, Failure] = {}
    for cell in cells:
        failure = results.failure(cell)
        if failure is not None:
            failures[cell] = failure
    records = results.records(table, cells)
    return summarise(table, budget, records, failures, only=only, seeds=seeds)


def documents(tables: Iterable[Table], results: Results) -> dict[str, str]:
    """Return the files of the folder, by name: everything that has a record, in any budget."""
    found: dict[str, str] = {}
    lines = []
    tables = sorted(tables, key=lambda table: table.key)
    reports: list[TableReport] = []
    for table in tables:
        held = reports_of(table, results)
        reports += held
        measured = [report for report in held if report.records]
        if not measured:
            continue
        drawings = {report.budget: _drawings(report) for report in measured}
        captions = {
            budget: {name: text for name, (text, _) in drawn.items()}
            for budget, drawn in drawings.items()
        }
        page = f"{table.page or table.key}.md"
        before = f"{found[page]}\n" if page in found else ""
        found[page] = before + markdown(measured, captions)
        for drawn in drawings.values():
            found |= {name: drawing for name, (_, drawing) in drawn.items()}
        lines += [_index_line(report, page) for report in measured]
    over_all = gains.page(tables, results)
    if over_all is not None:
        found[gains.PAGE] = over_all
    verdict = PaperVerdict.of(reports)
    if verdict is not None:
        found |= {PAGE: verdict_page(verdict), CSV: comma_separated(verdict)}
    if lines:
        over = {gains.PAGE: "what is memory?", PAGE: "what of the paper holds?"}
        found[INDEX] = _index(lines, {name: text for name, text in over.items() if name in found})
    return found


def reports_of(table: Table, results: Results) -> list[TableReport]:
    """Return the reports of all budgets of a table."""
    return [report_of(table, name, results) for name in BUDGETS if name in table.budgets]


def paper_verdict(tables: Iterable[Table], results: Results) -> PaperVerdict | None:
    """Return what of the paper holds, None where nothing of it is measured."""
    asked = sorted(filter(of_the_paper, tables), key=lambda table: table.key)
    return PaperVerdict.of([one for table in asked for one in reports_of(table, results)])


def write_documents(tables: Iterable[Table], results: Results, folder: Path) -> list[Path]:
    """Write the folder of results, each file whole or not at all; returns what was written."""
    found = documents(tables, results)
    if found:
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in found.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
        written.append(folder / name)
    return written


def _drawings(report: TableReport) -> dict[str, tuple[str, str]]:
    """Return file name -> what it shows, and the drawing."""
    found = {}
    for group in report.groups:
        drawing = figure(report, group)
        if drawing is not None:
            name = "-".join(part for part in (report.table.key, report.budget, group.name) if part)
            title = f"{report.table.title}: {group.name}" if group.name else report.table.title
            found[f"{name}.svg"] = (title, standalone(drawing))
    for scene in report.scenes:
        name = "-".join(part for part in (report.table.key, report.budget, scene.name) if part)
        found[f"{name}.svg"] = (scene.title, standalone(scene_drawing(scene)))
    ranks = ranks_of(report)
    if ranks is not None:
        drawing = rank_chart(report, ranks)
        title = f"{report.table.title}: mean ranks over tasks"
        found[f"{report.table.key}-{report.budget}-ranks.svg"] = (title, standalone(drawing))
    return found


def _index(lines: list[list[str]], over_all: dict[str, str]) -> str:
    columns = ["table", "what", "budget", "cells measured"]
    parts = [
        "# Measured tables and figures",
        "Generated by `make results` from the records in `results/`; not edited by hand.",
        grid(columns, lines, names=3),
    ]
    links = ", ".join(f"[{text}]({name})" for name, text in over_all.items())
    parts += [f"Over several tables: {links}"] * bool(links)
    return "\n\n".join(parts) + "\n"


def _index_line(report: TableReport, page: str) -> list[str]:
    failed = f" ({len(report.failures)} failed)" if report.failures else ""
    names = [report.table.key, report.table.title, report.budget]
    key, title, budget = map(escape_markdown, names)
    return [f"[{key}]({page})", title, budget, f"{report.records} of {report.cells}{failed}"]
