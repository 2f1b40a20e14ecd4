"""Conditions on columns of a table, such as ``city == 'Oslo' and age >= 65``: read, not run."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from hma.data.labels import finite_number, listed
from hma.errors import UserError

MOST_CHARACTERS = 4000
"""Of an expression."""
MOST_TERMS = 32
"""Comparisons of an expression."""
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
SHOWN = 80
"""Characters of an expression that a message repeats."""
RULE = "COLUMN == VALUE, with ==, !=, <, <=, > or >=, several joined by 'and'"
TOKEN = re.compile(
    r"""\s*(?:(?P<compare>==|!=|<=|>=|<|>)|(?P<quoted>"[^"]*"|'[^']*'|`[^`]*`)"""
    r"""|(?P<bare>[^\s=!<>"'`]+))"""
)


@dataclass(frozen=True)
class Condition:
    """A comparison of a column with a value; numbers are compared as numbers, all else as text."""

    column: str
    compare: str
    value: str

    def holds(self, cell: str | None) -> bool:
        """Tell whether it holds for a cell; an empty one equals '' and is neither less nor more.

        Example:
            >>> Condition("age", "<", "9").holds("10"), Condition("age", "==", "9").holds("9.0")
            (False, True)
        """
        text = cell or ""
        number, own = self._number, finite_number(text)
        if number is not None and own is not None:
            return COMPARISONS[self.compare](own, number)
        if self.compare in ("==", "!="):
            return COMPARISONS[self.compare](text, self.value)
        if not text or number is not None or own is not None:
            return False  # a number and a text have no order
        return COMPARISONS[self.compare](text, self.value)

    @cached_property
    def _number(self) -> float | None:
        return finite_number(self.value)


@dataclass(frozen=True)
class Conditions:
    """Comparisons, all of which must hold.

    Args:
        text: As they were written.
        comparisons: The same, parsed.
    """

    text: str
    comparisons: tuple[Condition, ...]


def parse_conditions(text: str) -> Conditions:
    """Return the comparisons of an expression; takes time that grows with its length alone.

    Example:
        >>> parse_conditions("'home town' == Oslo and age>=65").comparisons
        (Condition(column='home town', compare='==', value='Oslo'), \
Condition(column='age', compare='>=', value='65'))
    """
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"--where must have at most {MOST_CHARACTERS} characters, got {len(text)}; give --ids"
        )
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            raise _wrong(text)
        tokens.append(found)
        at = found.end()
    conditions = []
    for first in range(0, len(tokens) + 1, 4):
        part, joint = tokens[first : first + 3], tokens[first + 3 : first + 4]
        right = len(part) == 3 and part[1]["compare"] and not part[0]["compare"]
        if not right or part[2]["compare"] or (joint and joint[0]["bare"] != "and"):
            raise _wrong(text)
        conditions.append(Condition(_plain(part[0]), part[1]["compare"], _plain(part[2])))
        if not joint:
            break
    if len(conditions) > MOST_TERMS:
        raise UserError(
            f"--where takes at most {MOST_TERMS} comparisons, got {len(conditions)}; give --ids"
        )
    return Conditions(text, tuple(conditions))


def rows_where(conditions: Conditions, cells: Mapping[str, Sequence[str | None]]) -> list[int]:
    """Return the places of the rows for which all conditions hold.

    Args:
        conditions: Comparisons.
        cells: Column -> its cell in each row.
    """
    for condition in conditions.comparisons:
        if condition.column not in cells:
            near = get_close_matches(condition.column, cells, n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(
                f"--where names the column {condition.column[:SHOWN]!r}, which the table has "
                f"not{guess}; it has {listed(list(cells), 30)}"
            )
    count = len(next(iter(cells.values()), ()))
    return [
        place
        for place in range(count)
        if all(one.holds(cells[one.column][place]) for one in conditions.comparisons)
    ]


def _plain(token: "re.Match[str]") -> str:
    return token["bare"] or token["quoted"][1:-1]


def _wrong(text: str) -> UserError:
    return UserError(
        f"--where must be {RULE}; quote names and values with spaces; got {text[:SHOWN]!r}"
    )
