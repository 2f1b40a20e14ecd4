"""The same training with several seeds, in three steps: compare, lay out, page.

1. :func:`compare_seeds` turns what every candidate said of each seed's test rows into a
   :class:`SeedsReport`, plain numbers (``comparing``).
2. ``layout`` writes the numbers as a person reads them, ``dots`` draws them and ``verdict`` says
   what they come to, by the rules for a single run.
3. :func:`write_page` puts all of it into ``templates/``.
"""

from hma.report.seeds.comparing import Candidate, SeedAnswers, compare_seeds
from hma.report.seeds.page import write_page
from hma.report.seeds.seeds_report import SeedsReport

__all__ = ["Candidate", "SeedAnswers", "SeedsReport", "compare_seeds", "write_page"]
