"""Pictures of a table: from its records to scenes, and scenes drawn for print and for pages."""

from hma.report.pictures.kinds import scenes_of
from hma.report.pictures.printed import PrintFormat, print_pictures
from hma.report.pictures.scene import Check, HeatMap, Line, Plot, Point, Scene, Series

__all__ = [
    "Check",
    "HeatMap",
    "Line",
    "Plot",
    "Point",
    "PrintFormat",
    "Scene",
    "Series",
    "print_pictures",
    "scenes_of",
]
