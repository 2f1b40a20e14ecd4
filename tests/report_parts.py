"""Reports with other values in one of their sections."""

from dataclasses import replace
from typing import Any

from hma.report.run_report import RunReport


def change_part(report: RunReport, key: str, **changes: Any) -> RunReport:
    """Return the report with other values in what a section shows."""
    part = report.parts[key]
    changed = part._replace(**changes) if hasattr(part, "_replace") else replace(part, **changes)
    return replace(report, parts={**report.parts, key: changed})


def with_parts(report: RunReport, **parts: Any) -> RunReport:
    """Return the report with other things for its sections to show."""
    return replace(report, parts={**report.parts, **parts})
