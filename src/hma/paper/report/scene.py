"""What a picture shows, in plain numbers and words; it is drawn for print and for pages alike."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hma.report.svg import Look

Ticks = tuple[tuple[float, str], ...]
Groups = tuple[tuple[str, int], ...]
"""Names of neighbouring lines of a heat map, each with how many lines it names."""


class Example(NamedTuple):
    """Which row of the data a point is; pages show it where the data is there.

    Args:
        task, seed: Of the cell whose data it is.
        split: ``train``, ``validation`` or the name of a test split.
        place: Its place there.
    """

    task: str
    seed: int
    split: str
    place: int

    @property
    def key(self) -> str:
        """Its name on a page."""
        return "/".join(map(str, self))


class Point(NamedTuple):
    """A point of a series.

    Args:
        x, y: Where it is; a ``y`` of NaN is a hole in the line.
        words: What it is, a line each; the first names it.
        near: Places of other points that are marked with it, counted through the whole plot.
        example: The row it stands for.
        low, high: Ends of a band around ``y``.
    """

    x: float
    y: float
    words: tuple[str, ...]
    near: tuple[int, ...] = ()
    example: Example | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one kind.

    Args:
        name: In the legend.
        look: How they look.
        points: In order.
        joined: Whether a line goes through them.
    """

    name: str
    look: Look
    points: tuple[Point, ...]
    joined: bool = False


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Series on two axes.

    Args:
        title: Above it.
        series: What it shows; those drawn later lie above.
        x_title, y_title: Of the axes.
        x_ticks, y_ticks: Marks of the axes; None for round numbers, empty for none.
    """

    title: str
    series: tuple[Series, ...]
    x_title: str = ""
    y_title: str = ""
    x_ticks: Ticks | None = None
    y_ticks: Ticks | None = None


class Line(NamedTuple):
    """A row or a column of a heat map: what it is, and which row of the data."""

    words: str
    example: Example | None = None


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Numbers as shades, the larger the darker.

    Args:
        title: Above it.
        values: Row by row; None where there is none.
        rows, columns: What they are.
        row_groups, column_groups: Neighbours that have a name together; lines part them.
        row_title, column_title: Of the sides.
        value_title: What the numbers are.
        digits: Decimals that a number is shown with.
        written: Whether each field shows its number.
    """

    title: str
    values: tuple[tuple[float | None, ...], ...]
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    row_groups: Groups
    column_groups: Groups
    row_title: str = ""
    column_title: str = ""
    value_title: str = ""
    digits: int = 3
    written: bool = False

    @property
    def reach(self) -> tuple[float, float]:
        """The least and the largest number; 0 and 1 of none."""
        there = [value for _, _, value in self.numbered]
        return (min(there), max(there)) if there else (0.0, 1.0)

    def is_dark(self, value: float) -> bool:
        """Tell whether the shade of a number is one to write on in white."""
        low, high = self.reach
        return value > low + 0.6 * (high - low)

    @property
    def numbered(self) -> Iterator[tuple[int, int, float]]:
        """Row, column and number of each field that has one."""
        for row, line in enumerate(self.values):
            for column, value in enumerate(line):
                if value is not None:
                    yield row, column, value


Panel = Plot | HeatMap


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
