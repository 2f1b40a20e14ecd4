"""Columns of a table: how each becomes numbers."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hma.data.labels import label_text
from hma.data.options import PreparationOptions
from hma.data.table.dates import DAY, FORMATS, ISO, DateColumn, dates, days_of, fit_date, formats_of
from hma.errors import UserError
from hma.extras import needed
from hma.io.json_files import Default, checked

Series = Any
"""A ``pandas.Series``; pandas carries no types."""
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: ``(value - mean) / std``, 0 where missing.

    Args:
        name: Name of the column.
        mean, std: Of the training rows that have a value; ``std`` is 1 for a constant.
        indicator: Whether a second value says that the first is missing.
    """

    name: str
    mean: float
    std: float
    indicator: bool

    @property
    def width(self) -> int:
        """Values per row."""
        return 1 + self.indicator

    def write(self, column: Series, out: NDArray[np.float32], rows: Rows) -> None:
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

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        return {"kind": "number", **asdict(self)}


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, one-hot; a category not seen in training is all zeros.

    Args:
        name: Name of the column.
        values: The categories.
        missing: Whether missing is a category of its own, the last.
        rare: Training categories left out because there are too many.
    """

    name: str
    values: tuple[str, ...]
    missing: bool
    rare: int = 0

    @property
    def width(self) -> int:
        """Values per row."""
        return len(self.values) + self.missing

    def write(self, column: Series, out: NDArray[np.float32], rows: Rows) -> None:
        """Write the one-hot rows into ``out``, ``(N, width)``, which holds zeros."""
        pandas = needed("pandas", "reading a table")
        gone = column.isna().to_numpy()
        index = pandas.Index(self.values, dtype="str")
        codes = index.get_indexer(pandas.Index(texts(column), dtype="str"))
        codes[gone] = len(self.values) if self.missing else -1
        seen = codes >= 0
        out[np.flatnonzero(seen), codes[seen]] = 1.0

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        return {"kind": "category", **asdict(self), "values": list(self.values)}


@dataclass(frozen=True)
class EmptyColumn:
    """A column without a value in the training rows: left out."""

    name: str
    width: int = 0

    def write(self, column: Series, out: NDArray[np.float32], rows: Rows) -> None:
        """Write nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON values."""
        return {"kind": "empty", "name": self.name}


Column = NumberColumn | CategoryColumn | DateColumn | EmptyColumn


def fit_column(name: str, column: Series, rows: Rows, options: PreparationOptions) -> Column:
    """Learn from training rows what a column is."""
    known = column.dropna()
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


COLUMNS: dict[str, tuple[type[Column], dict[str, Any]]] = {
    "number": (NumberColumn, {"name": str, "mean": float, "std": float, "indicator": bool}),
    "category": (
        CategoryColumn,
        {"name": str, "values": list[str], "missing": bool, "rare": Default(int, 0)},
    ),
    "date": (
        DateColumn,
        {
            "name": str,
            "format": Literal[FORMATS],
            "mean": float,
            "std": float,
            "year_mean": float,
            "year_std": float,
            "clock": bool,
            "indicator": bool,
        },
    ),
    "empty": (EmptyColumn, {"name": str}),
}
"""Kinds of columns and what they look like in JSON."""


def column_from_json(values: dict[str, Any]) -> Column:
    """Return the column that ``to_json`` wrote, or raise a ``ValueError``."""
    if values.get("kind") not in COLUMNS:
        raise ValueError(f"a column has an unknown kind, {values.get('kind')!r}")
    made, shape = COLUMNS[values["kind"]]
    whole = checked(values, shape, where="a column")
    given = {name: whole[name] for name in shape}
    if "values" in given:
        given["values"] = tuple(given["values"])
    for mean, std in (("mean", "std"), ("year_mean", "year_std")):
        if std in given and not (math.isfinite(given[mean]) and 0 < given[std] < math.inf):
            raise ValueError(
                f"column {given['name']!r} has {mean} {given[mean]} and {std} {given[std]}"
            )
    return made(**given)


def numbers(name: str, column: Series, rows: Rows) -> Floats:
    """Return a column as float64, NaN where missing; a text that is no number is refused."""
    pandas = needed("pandas", "reading a table")
    if pandas.api.types.is_datetime64_any_dtype(column.dtype):  # seconds, for older preparations
        return days_of(dates(column, ISO)) * DAY
    values: Floats = pandas.to_numeric(column, errors="coerce").to_numpy("float64", na_value=np.nan)
    wrong = (np.isnan(values) & column.notna().to_numpy()) | np.isinf(values)
    if wrong.any():
        place = int(wrong.argmax())
        raise UserError(
            f"column {name!r} has {str(column.iloc[place])!r} in row {rows[place]} (counted from "
            f"0), as in {int(wrong.sum())} of {len(values)} rows, but it is a column of finite "
            "numbers; correct it or leave it empty"
        )
    return values


def texts(column: Series) -> list[str]:
    """Return a column as text, empty where missing; whole numbers have no decimal point."""
    return [label_text(cell) or "" for cell in cells(column)]


def cells(column: Series) -> list[Any]:
    """Return the values of a column, None where missing."""
    return [None if gone else value for value, gone in zip(column, column.isna(), strict=True)]


def mean_and_std(values: Floats) -> tuple[float, float]:
    """Return mean and standard deviation without overflow; 1 for the deviation of a constant.

    Example:
        >>> mean_and_std(np.array([0.0, 4.0])), mean_and_std(np.array([7.0, 7.0]))
        ((2.0, 2.0), (7.0, 1.0))
    """
    if values.min() == values.max():
        return float(values[0]), 1.0
    scale = float(np.abs(values).max())
    mean, std = float((values / scale).mean()), float((values / scale).std())
    return mean * scale, std * scale or 1.0


def are_numbers(known: Series) -> NDArray[np.bool_]:
    """Tell of each cell whether it is a number, infinite ones too."""
    pandas = needed("pandas", "reading a table")
    if pandas.api.types.is_datetime64_any_dtype(known.dtype):
        return np.zeros(len(known), dtype=bool)
    found: NDArray[np.bool_] = pandas.to_numeric(known, errors="coerce").notna().to_numpy()
    return found
