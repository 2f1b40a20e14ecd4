"""A picture of a table: panels, the numbers behind it, and what was found."""

from dataclasses import dataclass
from typing import NamedTuple

from hma.report.charts import Example, Panel, Plot, Series


class Check(NamedTuple):
    """A number that says whether a picture shows what it is said to show.

    Args:
        where: Which task and row.
        what: What was measured.
        measured: Its value over seeds.
        chance: What it would be without the effect, with its interval.
        outcome: In a word or a p-value.
    """

    where: str
    what: str
    measured: str
    chance: str
    outcome: str


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A picture: panels, the numbers behind it, and what was found.

    Args:
        name: Names its file; empty where a table has one picture.
        title: What it shows.
        panels: In reading order.
        columns: Panels beside each other.
        finding: What the numbers say, a line for each row; empty for none.
        checks: The numbers.
        about: How it was made.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    columns: int = 2
    finding: str = ""
    checks: tuple[Check, ...] = ()
    about: str = ""

    @property
    def legend(self) -> dict[str, Series]:
        """Series by name, as the plots have them first."""
        found: dict[str, Series] = {}
        for panel in self.panels:
            for series in panel.series if isinstance(panel, Plot) else ():
                found.setdefault(series.name, series)
        return found

    @property
    def examples(self) -> tuple[Example, ...]:
        """Rows of the data that are pointed at, each once."""
        found: dict[Example, None] = {}
        for panel in self.panels:
            if isinstance(panel, Plot):
                marks = [point.example for series in panel.series for point in series.points]
            else:
                marks = [line.example for line in (*panel.rows, *panel.columns)]
            found |= dict.fromkeys(example for example in marks if example is not None)
        return tuple(found)
