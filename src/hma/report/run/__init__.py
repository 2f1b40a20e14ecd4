"""The page of a run, in three steps: summarise, plot, page.

1. :func:`summarise` turns a model, its records and its answers into a :class:`RunReport`, plain
   numbers (``summary``, ``scoring``, ``attention``, ``examples``, ``memory_health``, ``maps``,
   ``records``).
2. ``score_views`` and ``memory_views`` lay the numbers out, ``charts`` draws them, ``verdict``
   says in a sentence what they come to and ``advice`` what to try next.
3. :func:`render` puts all of it into ``templates/``.
"""

from hma.report.run.examples import TrainingRows
from hma.report.run.page import render, write_page
from hma.report.run.run_report import RunReport
from hma.report.run.scoring import Answers
from hma.report.run.summary import About, summarise

__all__ = [
    "About",
    "Answers",
    "RunReport",
    "TrainingRows",
    "render",
    "summarise",
    "write_page",
]
