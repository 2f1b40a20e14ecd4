"""The sections of the page of a run, in order; each is a file that gathers and draws it."""

from hma.report.run_report import Section
from hma.report.sections import (
    attention,
    comparison,
    coverage,
    curves,
    errors,
    maps,
    memory,
    setup,
    stored_rows,
    suspects,
)

SECTIONS: tuple[Section, ...] = (
    comparison.SECTION,
    curves.SECTION,
    *errors.SECTIONS,
    coverage.SECTION,
    memory.SECTION,
    stored_rows.SECTION,
    attention.SECTION,
    stored_rows.EXAMPLES,
    suspects.SECTION,
    maps.SECTION,
    *setup.SECTIONS,
)
