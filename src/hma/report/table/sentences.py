"""What the report says in sentences: how much is measured, where from, what is missing."""

from collections.abc import Mapping

from hma.report.table.table_report import TableReport

LISTED = 20
"""Failures that are written out."""


def state(report: TableReport) -> str:
    """Return how much is measured."""
    if report.records == report.cells:
        return f"All {report.cells} cells are measured, with {_seeds(report)}."
    failed = f", {len(report.failures)} of the others failed" if report.failures else ""
    return (
        f"{report.records} of {report.cells} cells are measured{failed}; asked for: "
        f"{_seeds(report)}."
    )


def missing(report: TableReport) -> str:
    """Return which command measures the rest; empty if there is nothing that can be measured."""
    count = report.cells - report.records - report.retired
    return f"{count} cells are missing; this measures them:" if count else ""


def failures(report: TableReport) -> list[str]:
    """Return a line for each failed cell, up to a number of them."""
    lines = [f"{cell}: {failure.error}" for cell, failure in report.failures.items()]
    more = len(lines) - LISTED
    return lines[:LISTED] + ([f"and {more} more"] if more > 0 else [])


def origin(report: TableReport) -> dict[str, str]:
    """Return where the numbers come from, by name."""
    found = {
        "budget": f"{report.budget}: {report.budget_what}",
        "records": f"{report.records} of {report.cells}",
        "commits": _counted(report.commits, report.records),
    }
    for package, versions in report.versions.items():
        found[package] = _counted(versions, report.records)
    if report.outside:
        found["not asked for"] = ", ".join(report.outside)
    return {name: text for name, text in found.items() if text}


def _counted(found: Mapping[str, int], records: int) -> str:
    """Return the values; with their numbers of records where it is not one for all."""
    if list(found.values()) == [records]:
        return next(iter(found))
    return ", ".join(f"{value} ({count} records)" for value, count in found.items())


def _seeds(report: TableReport) -> str:
    first, last = report.seeds[0], report.seeds[-1]
    if len(report.seeds) > 2 and report.seeds == tuple(range(first, last + 1)):
        return f"seeds {first} to {last}"
    return f"seed{'s' if len(report.seeds) > 1 else ''} {', '.join(map(str, report.seeds))}"
