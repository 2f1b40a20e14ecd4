"""Data frames of any library as the three kinds of columns a table has: numbers, dates, text."""

import sys
from collections.abc import Collection
from datetime import date, time, timedelta
from numbers import Number
from typing import Any

import numpy as np

from hma.data.labels import label_text
from hma.data.table.columns import Frame, Series, cells
from hma.errors import UserError
from hma.extras import needed

CELLS = (str, Number, np.generic, date, time, timedelta, type(None))
"""What a cell of mixed columns may be, besides the marks of pandas for a missing one."""


def frame_of(given: object) -> Frame | None:
    """Return a data frame of any library as one of pandas; None for what is no data frame.

    Known are pandas, what converts itself by ``to_pandas`` (polars, pyarrow, cuDF) and what hands
    itself over as Arrow does, by ``__arrow_c_stream__``.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(given, pandas.DataFrame):
        return given
    if callable(getattr(given, "to_pandas", None)):
        made = given.to_pandas()  # type: ignore[attr-defined]
        return made if hasattr(made, "columns") else None
    if hasattr(given, "__arrow_c_stream__"):
        return needed("pyarrow", "reading such a data frame").table(given).to_pandas()
    return None


def simplify(frame: Frame, labels: Collection[str] = ()) -> Frame:
    """Reduce the many types of a frame to three: float64, dates, text with NaN where missing.

    Args:
        frame: The rows.
        labels: Columns that become text whatever they are.
    """
    pandas = needed("pandas", "reading a data frame")
    types = pandas.api.types
    columns = {}
    for name, column in frame.items():
        number = types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype)
        if number and str(name) not in labels:
            values = column.to_numpy("float64", na_value=float("nan"))
        elif types.is_datetime64_any_dtype(column.dtype) and str(name) not in labels:
            values = column.reset_index(drop=True)
        else:
            values = pandas.array([label_text(cell) for cell in cells(column)], dtype="str")
        columns[str(name)] = values
    return pandas.DataFrame(columns)


class CellTypeError(UserError, TypeError):
    """A cell is neither text nor number, or a column is of a type that has no order."""


def plain_cells(frame: Frame) -> Frame:
    """Return a frame whose mixed columns have the type of their cells; durations are seconds.

    Raises a :class:`CellTypeError` for cells that are neither text, number, date nor missing.
    """
    pandas = needed("pandas", "reading a data frame")
    plain = {name: _plain_column(name, cells, pandas.api.types) for name, cells in frame.items()}
    return pandas.DataFrame(plain, index=frame.index)


def _plain_column(name: object, column: Series, types: Any) -> Series:
    if types.is_complex_dtype(column.dtype):
        raise CellTypeError(
            f"column {str(name)!r} of X holds complex numbers; give real and imaginary parts"
        )
    if types.is_timedelta64_dtype(column.dtype):
        return column.dt.total_seconds()
    if column.dtype != object:
        return column
    strange = {one for one in set(map(type, column)) if not issubclass(one, CELLS)}
    for place, cell in enumerate(column if strange else ()):
        if type(cell) in strange and not types.is_scalar(cell):
            raise CellTypeError(
                f"each cell of the argument must be a string, a number, a date or missing, got "
                f"{cell!r} in column {str(name)!r}, row {place} (counted from 0); leave the column "
                "out, or make text or several columns of it"
            )
    return column.infer_objects()
