"""Columns of dates: found by their format, and turned into numbers."""

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hma.errors import UserError
from hma.extras import needed

ISO = "ISO8601"
DAYS = ("%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y",
        "%d/%m/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y")  # fmt: skip
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
FORMATS = (ISO, *(day + clock for day in DAYS for clock in CLOCKS))
"""How dates may be written; of two that fit, the first is taken."""
LIKE_A_DATE = re.compile(r"(?=.*\d\d)(?=.*[-/. ])[\w:,./+ -]{6,40}")
"""Spares all the other words the many formats."""
LIKE_ISO = re.compile(r"\d{4}([-.])\d\d\1\d\d([T ].+)?|(1[89]|20)\d\d-\d\d")
"""Spares codes such as 1200-5, which pandas takes for dates too."""
TRIED = 20
"""Cells that rule out most formats."""
DAY, YEAR = 86400.0, 365.2425
MONTHS = (6.5, math.sqrt((12**2 - 1) / 12))
"""Mean and deviation of the numbers of the months."""
Series = Any
"""A ``pandas.Series``; pandas carries no types."""
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class DateColumn:
    """A column of dates as numbers, all 0 where missing.

    They are: elapsed days and the year, standardised; the month; sine and cosine of the day of the
    year; the weekday, one-hot from Monday on; where training rows have one, sine and cosine of the
    time of day.

    Args:
        name: Name of the column.
        format: How the dates are written, one of ``FORMATS``.
        mean, std: Of the days since 1970, over the training rows.
        year_mean, year_std: Of the years.
        clock: Whether there is a time of day.
        indicator: Whether a last value says that the date is missing.
    """

    name: str
    format: str
    mean: float
    std: float
    year_mean: float
    year_std: float
    clock: bool
    indicator: bool

    @property
    def width(self) -> int:
        """Values per row."""
        return 12 + 2 * self.clock + self.indicator

    def write(self, column: Series, out: NDArray[np.float32], rows: Rows) -> None:
        """Write the values of the column into ``out``, ``(N, width)``, which holds zeros."""
        when = self._dates(column, rows)
        known = when.notna().to_numpy()
        at = when[known].dt
        clock = (when[known] - at.normalize()).dt.total_seconds().to_numpy() / DAY
        day = 2 * math.pi * (at.day_of_year.to_numpy() - 1 + clock) / YEAR
        values = [
            (days_of(when)[known] - self.mean) / self.std,
            (at.year.to_numpy() - self.year_mean) / self.year_std,
            (at.month.to_numpy() - MONTHS[0]) / MONTHS[1],
            np.sin(day),
            np.cos(day),
            *(at.day_of_week.to_numpy() == weekday for weekday in range(7)),
        ]
        if self.clock:
            values += [np.sin(2 * math.pi * clock), np.cos(2 * math.pi * clock)]
        out[np.flatnonzero(known), : len(values)] = np.stack(values, axis=1)
        if self.indicator:
            out[:, -1] = ~known

    def _dates(self, column: Series, rows: Rows) -> Series:
        when = dates(column, self.format)
        wrong = when.isna().to_numpy() & column.notna().to_numpy()
        if wrong.any():
            place = int(wrong.argmax())
            raise UserError(
                f"column {self.name!r} has {str(column.iloc[place])!r} in row {rows[place]} "
                f"(counted from 0), as in {int(wrong.sum())} of {len(wrong)} rows, but it is a "
                f"column of dates such as {self.example}; correct it or leave it empty"
            )
        return when

    @property
    def example(self) -> str:
        """A date as the column has them."""
        return "2024-01-31" if self.format == ISO else f"31 January 2024 as {self.format!r}"

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        return {"kind": "date", **asdict(self)}


def fit_date(name: str, column: Series, format: str) -> DateColumn:
    """Learn from training rows; ``format`` is that of their dates."""
    when = dates(column, format)
    known = when.dropna()
    days, years = days_of(known), known.dt.year.to_numpy().astype(np.float64)
    return DateColumn(
        name,
        format,
        mean=float(days.mean()),
        std=float(days.std()) or 1.0,
        year_mean=float(years.mean()),
        year_std=float(years.std()) or 1.0,
        clock=bool((known != known.dt.normalize()).any()),
        indicator=len(known) < len(column),
    )


def formats_of(known: Series) -> list[str]:
    """Return every format in which all cells are dates; none where they are something else.

    Args:
        known: Cells that are not missing.
    """
    types = needed("pandas", "dates").api.types
    if types.is_datetime64_any_dtype(known.dtype):
        return [ISO]
    if types.is_numeric_dtype(known.dtype):
        return []
    first = known.iloc[:TRIED]
    if not all(LIKE_A_DATE.fullmatch(str(cell)) for cell in first):
        return []
    whole = all(LIKE_ISO.fullmatch(str(cell)) for cell in first)
    ways = FORMATS if whole else FORMATS[1:]
    fits = [format for format in ways if dates(first, format).notna().all()]
    return [format for format in fits if dates(known, format).notna().all()]


def dates(column: Series, format: str) -> Series:
    """Return the dates in a column, NaT where there is none in that format; zones become UTC."""
    pandas = needed("pandas", "dates")
    when = pandas.to_datetime(column, format=format, errors="coerce", utc=True)
    return when.dt.tz_localize(None)


def days_of(when: Series) -> Floats:
    """Return the days since 1970, NaN where missing."""
    start = needed("pandas", "dates").Timestamp(0)
    days: Floats = (when - start).dt.total_seconds().to_numpy("float64") / DAY
    return days


def moments(name: str, column: Series, rows: Rows) -> Floats:
    """Return a column of numbers or dates as numbers that order the rows.

    Args:
        name: Name of the column, for messages.
        column: Its cells.
        rows: Their rows in the table.
    """
    pandas = needed("pandas", "dates")
    known = column.dropna()
    formats = formats_of(known) if len(known) == len(column) else []
    if formats:
        return days_of(dates(column, formats[0]))
    values: Floats = pandas.to_numeric(column, errors="coerce").to_numpy("float64", na_value=np.nan)
    if np.isfinite(values).all():
        return values
    read = [np.isfinite(values), *(dates(column, way).notna().to_numpy() for way in FORMATS)]
    wrong = int(max(read, key=np.sum).argmin())
    said = "nothing" if column.isna().iloc[wrong] else repr(str(column.iloc[wrong]))
    raise UserError(
        f"time column {name!r} has {said} in row {rows[wrong]} (counted from 0), which is no time: "
        "all of it must be numbers, or dates written in one way such as 2024-01-31"
    )
