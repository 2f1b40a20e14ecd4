"""Stored rows whose labels may be wrong."""

import math
from dataclasses import dataclass

from markupsafe import Markup

from hma.report import numbers
from hma.report.html import fill
from hma.report.run_report import RunReport, Section


@dataclass(frozen=True, kw_only=True)
class Against:
    """A row that speaks against the label of another.

    Args:
        id: Its sample id.
        label: Its own label.
        share: What it counts in the vote on the other.
        what: What it is.
    """

    id: int
    label: str
    share: float
    what: str

    def __str__(self) -> str:
        return f"{numbers.percent(self.share)} {self.label}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class SuspectRow:
    """A stored row and what all others say of its label.

    Args:
        id: Its sample id.
        label: As it was given.
        suggested: What the others vote for.
        sure: Their probability of that; NaN for a number.
        score: How far the label is from their answer; NaN where they cannot know.
        what: What the row is.
        where: Where it came from.
        against: The rows that speak most against the label, the strongest first.
        issue: Whether cleanlab takes the label for wrong; None where it was not asked.
    """

    id: int
    label: str
    suggested: str
    sure: float
    score: float
    what: str
    where: str
    against: tuple[Against, ...]
    issue: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SuspectRows:
    """Stored rows, the most suspicious label first.

    Args:
        rows: The first of them, or all.
        of: How many rows there are.
        unjudged: Rows whose label no other row has.
        issues: Labels that cleanlab takes for wrong; None where it was not asked.
        number: Whether labels are numbers.
    """

    rows: tuple[SuspectRow, ...]
    of: int
    unjudged: int
    issues: int | None = None
    number: bool = False

    @property
    def measure(self) -> str:
        """What the score is."""
        return "times the usual" if self.number else "doubt"

    @property
    def header(self) -> list[str]:
        """Names of the columns of a file."""
        asked = ["cleanlab"] if self.issues is not None else []
        names = ["id", "label", "suggested", "sure", self.measure, *asked]
        return [*names, "what", "where", "against"]

    def lines(self) -> list[list[str]]:
        """Return the cells of each row of a file."""
        return [
            [
                *(str(row.id), row.label, row.suggested, _cell(row.sure), _cell(row.score)),
                *([] if row.issue is None else ["wrong" if row.issue else ""]),
                *(row.what, row.where, " ".join(str(one.id) for one in row.against)),
            ]
            for row in self.rows
        ]

    def score_text(self, row: SuspectRow) -> str:
        """Return the score of a row for people."""
        if math.isnan(row.score):
            return "cannot be known"
        return numbers.times(row.score) if self.number else numbers.percent(row.score)

    def notes(self) -> list[str]:
        """Say what the list does not."""
        said = []
        if self.issues is not None:
            rows = numbers.counted(self.of, "row")
            said.append(f"cleanlab takes the labels of {self.issues} of {rows} for wrong")
        if self.unjudged:
            rows = numbers.counted(self.unjudged, "row")
            said.append(
                f"{rows} with a label that no other row has cannot be judged, and come last"
            )
        return said


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def draw(report: RunReport, found: SuspectRows) -> Markup:
    """Draw the first of the rows, each with those that speak against its label."""
    return fill("suspects", held=found)


SECTION = Section(
    "suspects",
    "Suspects",
    "Labels that may be wrong",
    lambda facts: facts.more.get("suspects"),
    draw,
)
