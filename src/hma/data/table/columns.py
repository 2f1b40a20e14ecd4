"""Columns of a table: how each becomes numbers."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hma.data.labels import label_text, mean_and_std
from hma.errors import UserError
from hma.extras import needed
from hma.io.json_files import dataclass_from_json
from hma.options.preparation import PreparationOptions

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
"""A ``pandas.Series``, or an array of numbers with NaN where missing; pandas carries no types."""
Frame = Any
"""A ``pandas.DataFrame``, or a dictionary from the name of a column to its cells."""
Values = NDArray[np.float32] | NDArray[np.float64]
Floats = NDArray[np.float64]
RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class Column(ABC):
    """A column of a table: what the training rows say of it, and how its cells become numbers.

    Args:
        name: Name of the column.
    """

    name: str

    kind: ClassVar[str]
    """What the column is, in JSON."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Values per row."""

    @abstractmethod
    def write(self, column: Series, out: Values, rows: RowNumbers) -> None:
        """Write the values of the column into ``out``, ``(N, width)``, which holds zeros."""

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        own = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}
        return {"kind": self.kind, **own}

    def _expect_moments(self, mean: str, std: str) -> None:
        """Raise unless the fields ``mean`` and ``std`` are finite, and the second is above 0."""
        pair = getattr(self, mean), getattr(self, std)
        if not (math.isfinite(pair[0]) and 0 < pair[1] < math.inf):
            raise ValueError(f"column {self.name!r} has {mean} {pair[0]} and {std} {pair[1]}")


@dataclass(frozen=True)
class DateColumn(Column):
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

    format: str
    mean: float
    std: float
    year_mean: float
    year_std: float
    clock: bool
    indicator: bool

    kind = "date"

    def __post_init__(self) -> None:
        self._expect_moments("mean", "std")
        self._expect_moments("year_mean", "year_std")
        if self.format not in FORMATS:
            raise ValueError(f"column {self.name!r} has an unknown format, {self.format!r}")

    @property
    def width(self) -> int:
        """Values per row."""
        return 12 + 2 * self.clock + self.indicator

    def write(self, column: Series, out: Values, rows: RowNumbers) -> None:
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

    def _dates(self, column: Series, rows: RowNumbers) -> Series:
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
    """Return every format in which all cells are dates; none if they are not dates.

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


def parse_times(name: str, column: Series, rows: RowNumbers) -> Floats:
    """Return a column of numbers or dates as numbers that order the rows.

    Args:
        name: Name of the column, for messages.
        column: Its cells.
        rows: Their rows in the table.
    """
    known = column.dropna()
    formats = formats_of(known) if len(known) == len(column) else []
    if formats:
        return days_of(dates(column, formats[0]))
    values = _as_numbers(column)
    if np.isfinite(values).all():
        return values
    read = [np.isfinite(values), *(dates(column, way).notna().to_numpy() for way in FORMATS)]
    wrong = int(max(read, key=np.sum).argmin())
    said = "nothing" if column.isna().iloc[wrong] else repr(str(column.iloc[wrong]))
    raise UserError(
        f"time column {name!r} has {said} in row {rows[wrong]} (counted from 0), which is no time: "
        "all of it must be numbers, or dates written in one way such as 2024-01-31"
    )


@dataclass(frozen=True)
class NumberColumn(Column):
    """A column of numbers: ``(value - mean) / std``, 0 where missing.

    Args:
        name: Name of the column.
        mean, std: Of the training rows that have a value; ``std`` is 1 for a constant.
        indicator: Whether a second value says that the first is missing.
    """

    mean: float
    std: float
    indicator: bool

    kind = "number"

    def __post_init__(self) -> None:
        self._expect_moments("mean", "std")

    @property
    def width(self) -> int:
        """Values per row."""
        return 1 + self.indicator

    def write(self, column: Series, out: Values, rows: RowNumbers) -> None:
        """Write the values of the column into ``out``, ``(N, width)``."""
        values = numbers(self.name, column, rows)
        missing = np.isnan(values)
        # (v - mean) may overflow where v / std - mean / std does not
        with np.errstate(over="ignore", invalid="ignore"):
            standard = np.where(missing, 0.0, values / self.std - self.mean / self.std)
            out[:, 0] = standard
        lost = ~np.isfinite(out[:, 0])
        if lost.any():
            place = int(lost.argmax())
            raise UserError(
                f"column {self.name!r} has {values[place]} in row {rows[place]}, too far from the "
                f"training values (mean {self.mean:.6g}, standard deviation {self.std:.6g}); "
                "correct it or leave it empty"
            )
        if self.indicator:
            out[:, 1] = missing


@dataclass(frozen=True)
class CategoryColumn(Column):
    """A column of categories, one-hot; a category not seen in training is all zeros.

    Args:
        name: Name of the column.
        values: The categories.
        missing: Whether missing is a category of its own, the last.
        rare: Training categories left out because there are too many.
    """

    values: tuple[str, ...]
    missing: bool
    rare: int = 0

    kind = "category"

    @property
    def width(self) -> int:
        """Values per row."""
        return len(self.values) + self.missing

    def write(self, column: Series, out: Values, rows: RowNumbers) -> None:
        """Write the one-hot rows into ``out``, ``(N, width)``, which holds zeros."""
        pandas = needed("pandas", "reading a table")
        gone = column.isna().to_numpy()
        index = pandas.Index(self.values, dtype="str")
        codes = index.get_indexer(pandas.Index(texts(column), dtype="str"))
        codes[gone] = len(self.values) if self.missing else -1
        seen = codes >= 0
        out[np.flatnonzero(seen), codes[seen]] = 1.0


@dataclass(frozen=True)
class EmptyColumn(Column):
    """A column without a value in the training rows: left out."""

    kind = "empty"

    @property
    def width(self) -> int:
        """No values."""
        return 0

    def write(self, column: Series, out: Values, rows: RowNumbers) -> None:
        """Write nothing."""


def fit_column(name: str, column: Series, rows: RowNumbers, options: PreparationOptions) -> Column:
    """Learn from training rows what a column is."""
    known = column[~np.isnan(column)] if isinstance(column, np.ndarray) else column.dropna()
    if len(known) == 0:
        return EmptyColumn(name)
    if name not in options.categorical:
        if are_numbers(known).all():
            values = numbers(name, column, rows)
            mean, std = mean_and_std(values[~np.isnan(values)])
            return NumberColumn(name, mean, std, indicator=bool(np.isnan(values).any()))
        if formats := formats_of(known):
            return fit_date(name, column, formats[0])
    named = needed("pandas", "reading a table").Series(texts(known), dtype="str")
    counts = named.value_counts()
    ranked = sorted(counts.index, key=lambda value: (-int(counts[value]), value))
    kept = sorted(ranked[: options.max_categories])
    return CategoryColumn(name, tuple(kept), len(known) < len(column), len(ranked) - len(kept))


def fit_columns(
    names: Sequence[str], frame: Frame, rows: RowNumbers, options: PreparationOptions
) -> tuple[Column, ...]:
    """Learn from training rows what each column is."""
    return tuple(fit_column(name, frame[name], rows, options) for name in names)


def width_of(columns: Sequence[Column]) -> int:
    """Return how many values a row has, ``F``."""
    return sum(column.width for column in columns)


def write_columns(columns: Sequence[Column], frame: Frame, rows: RowNumbers, out: Values) -> None:
    """Write the rows of a frame as numbers.

    Args:
        columns: What the columns are, as the training rows say.
        frame: The rows.
        rows: Their numbers in the table, for messages.
        out: Zeros, ``(N, F)``.
    """
    first = 0
    for column in columns:
        column.write(frame[column.name], out[:, first : first + column.width], rows)
        first += column.width


COLUMNS: dict[str, type[Column]] = {
    one.kind: one for one in (NumberColumn, CategoryColumn, DateColumn, EmptyColumn)
}


def column_from_json(values: dict[str, Any]) -> Column:
    """Return the column that ``to_json`` wrote, or raise a ``ValueError``."""
    own = dict(values)
    kind = own.pop("kind", None)
    if not isinstance(kind, str) or kind not in COLUMNS:
        raise ValueError(f"a column has an unknown kind, {kind!r}")
    return dataclass_from_json(COLUMNS[kind], own, where="a column")


def numbers(name: str, column: Series, rows: RowNumbers) -> Floats:
    """Return a column as float64, NaN where missing; raise if a text is not a number."""
    values = _as_numbers(column)
    wrong = np.isinf(values)
    if not isinstance(column, np.ndarray):
        wrong |= np.isnan(values) & column.notna().to_numpy()
    if wrong.any():
        place = int(wrong.argmax())
        said = str(np.asarray(column)[place])
        raise UserError(
            f"column {name!r} has {said!r} in row {rows[place]} (counted from "
            f"0), as in {int(wrong.sum())} of {len(values)} rows, but it is a column of finite "
            "numbers; correct it or leave it empty"
        )
    return values


def are_numbers(known: Series) -> NDArray[np.bool_]:
    """Tell which cells are numbers, infinite ones included."""
    return ~np.isnan(_as_numbers(known))


def _as_numbers(column: Series) -> Floats:
    """Return a column as float64, NaN where a cell is not a number; dates are not numbers."""
    if isinstance(column, np.ndarray):
        return column
    pandas = needed("pandas", "reading a table")
    if pandas.api.types.is_datetime64_any_dtype(column.dtype):
        return np.full(len(column), np.nan)
    values: Floats = pandas.to_numeric(column, errors="coerce").to_numpy("float64", na_value=np.nan)
    return values


def texts(column: Series) -> list[str]:
    """Return a column as text, empty where missing; whole numbers have no decimal point."""
    return [label_text(cell) or "" for cell in cells(column)]


def cells(column: Series) -> list[Any]:
    """Return the values of a column, None where missing."""
    return [None if gone else value for value, gone in zip(column, column.isna(), strict=True)]
