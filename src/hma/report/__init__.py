"""The page of a run: numbers with their uncertainty, and what the memories hold."""

from hma.report.collect import About, collect
from hma.report.compare import Answers
from hma.report.content import RunReport
from hma.report.looks import TrainingRows
from hma.report.markdown import markdown_summary
from hma.report.page import render, write_page

__all__ = [
    "About",
    "Answers",
    "RunReport",
    "TrainingRows",
    "collect",
    "markdown_summary",
    "render",
    "write_page",
]
