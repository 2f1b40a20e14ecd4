"""The report of a table: published and measured side by side, and what is missing."""

from hma.report.table.documents import write_documents
from hma.report.table.latex import latex
from hma.report.table.markdown import markdown
from hma.report.table.page import page
from hma.report.table.summary import summarise
from hma.report.table.table_report import TableReport
from hma.report.table.terminal import plain_text, terminal

__all__ = [
    "TableReport",
    "latex",
    "markdown",
    "page",
    "plain_text",
    "summarise",
    "terminal",
    "write_documents",
]
