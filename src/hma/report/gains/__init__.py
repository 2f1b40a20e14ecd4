"""What of a memory's gain is memory: over all tables that have the rows to tell."""

from hma.report.gains.climbs import Climb, climbs_of, pooled
from hma.report.gains.page import PAGE, page

__all__ = ["PAGE", "Climb", "climbs_of", "page", "pooled"]
