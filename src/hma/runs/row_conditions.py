"""Conditions on columns of a table, such as ``city == 'Oslo' and age >= 65``: read, not run."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from hma.data.labels import finite_number, listed
from hma.errors import UserError

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
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
        number, own = finite_number(self.value), finite_number(text)
        if number is not None and own is not None:
            return COMPARISONS[self.compare](own, number)
        if self.compare in ("==", "!="):
            return COMPARISONS[self.compare](text, self.value)
        if not text or number is not None or own is not None:
            return False  # a number and a text have no order
        return COMPARISONS[self.compare](text, self.value)


def parsed_conditions(text: str) -> list[Condition]:
    """Return the comparisons of an expression, all of which must hold.

    Example:
        >>> parsed_conditions("'home town' == Oslo and age>=65")
        [Condition(column='home town', compare='==', value='Oslo'), \
Condition(column='age', compare='>=', value='65')]
    """
    tokens, at = [], 0
    while text[at:].strip():
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
    return conditions


def rows_where(
    conditions: Sequence[Condition], cells: Mapping[str, Sequence[str | None]]
) -> list[int]:
    """Return the places of the rows for which all conditions hold.

    Args:
        conditions: Comparisons.
        cells: Column -> its cell in each row.
    """
    for condition in conditions:
        if condition.column not in cells:
            near = get_close_matches(condition.column, cells, n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(
                f"--where names the column {condition.column!r}, which the table has not{guess}; "
                f"it has {listed(list(cells), 30)}"
            )
    count = len(next(iter(cells.values()), ()))
    return [
        place
        for place in range(count)
        if all(condition.holds(cells[condition.column][place]) for condition in conditions)
    ]


def _plain(token: "re.Match[str]") -> str:
    return token["bare"] or token["quoted"][1:-1]


def _wrong(text: str) -> UserError:
    return UserError(f"--where must be {RULE}; quote names and values with spaces; got {text!r}")
