"""What is given as ``X`` and ``y``: arrays or data frames, as the columns of a table."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_X_y
from sklearn.utils.validation import validate_data

from hma.data.labels import listed
from hma.data.table.columns import (
    ISO,
    Column,
    Frame,
    NumberColumn,
    Series,
    dates,
    fit_columns,
    numbers,
    width_of,
    write_columns,
)
from hma.data.table.frames import frame_of, plain_cells, simplify
from hma.errors import UserError
from hma.estimator.learning import Floats, Integers
from hma.extras import needed
from hma.options.preparation import PreparationOptions

HASH_BITS = 52
"""Of a word, as float64 holds them."""


@dataclass(frozen=True)
class GivenRows:
    """Rows as they were given, column by column.

    Args:
        columns: Name of a column -> numbers as float64, NaN where missing, or a ``pandas.Series``
            of dates or text.
        count: Number of rows.
        categorical: Columns that are categories even where they look like numbers.
    """

    columns: Mapping[str, Floats | Series]
    count: int
    categorical: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.count

    def at(self, places: Integers) -> "GivenRows":
        """Return the rows at ``places``."""
        chosen = {
            name: cells[places] if isinstance(cells, np.ndarray) else cells.iloc[places]
            for name, cells in self.columns.items()
        }
        return replace(self, columns=chosen, count=len(places))

    def keys(self) -> Floats:
        """Return numbers that are equal where cells are, ``(N, K)``; of a text it is a hash."""
        return np.column_stack([_key(cells) for cells in self.columns.values()])


def _key(cells: Floats | Series) -> Floats:
    if isinstance(cells, np.ndarray):
        return np.where(np.isnan(cells), np.nan, cells)  # one NaN of the many there are
    pandas = needed("pandas", "reading a data frame")
    if pandas.api.types.is_datetime64_any_dtype(cells.dtype):
        cells = dates(cells, ISO)
    hashes = pandas.util.hash_pandas_object(cells, index=False).to_numpy()
    keys: Floats = (hashes >> np.uint64(64 - HASH_BITS)).astype(np.float64)
    return keys


# ------------------------------------------------------------------------------- what is given


def read_rows(estimator: BaseEstimator, given: Any, *, reset: bool) -> GivenRows:
    """Return ``X`` to predict, or where labels are checked apart, as columns.

    Columns of a data frame are taken by name: in any order, and without those that ``fit`` did not
    see, which a warning names.

    Args:
        estimator: Remembers number and names of the columns.
        given: An array, a list or a data frame.
        reset: Whether the columns are those of the first call.
    """
    frame = _known_frame(estimator, given, reset=reset)
    if frame is None:
        array = validate_data(
            estimator, given, reset=reset, dtype=None, ensure_all_finite="allow-nan"
        )
        return _rows_of_array(estimator, array)
    validate_data(estimator, frame, reset=reset, skip_check_array=True)
    return _rows_of_frame(frame)


def read_labelled_rows(
    estimator: BaseEstimator, given: Any, y: Any, *, reset: bool, y_numeric: bool = False
) -> tuple[GivenRows, NDArray[Any]]:
    """Return ``X`` as columns, and ``y``, one label a row.

    Args:
        estimator: Remembers number and names of the columns.
        given: An array, a list or a data frame.
        y: A label for each row.
        reset: Whether the columns are those of the first call.
        y_numeric: Whether labels are numbers.
    """
    frame = _known_frame(estimator, given, reset=reset)
    _expect_labels(y)
    if frame is None:
        array, y = validate_data(
            estimator, given, y, reset=reset, dtype=None, ensure_all_finite="allow-nan",
            y_numeric=y_numeric,
        )  # fmt: skip
        return _rows_of_array(estimator, array), y
    validate_data(estimator, frame, y, reset=reset, skip_check_array=True)
    rows = _rows_of_frame(frame)
    _, y = check_X_y(np.zeros((len(rows), 1)), y, y_numeric=y_numeric, estimator=estimator)
    return rows, y


def _known_frame(estimator: BaseEstimator, given: Any, *, reset: bool) -> Frame | None:
    """Return a data frame with the columns of the first call, in their order; None for an array."""
    frame = frame_of(given)
    if frame is None:
        return None
    names = [str(name) for name in frame.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"X has the column {twice!r} twice; rename one of them")
    if len(frame) == 0 or not names:
        raise UserError(
            f"X is an empty data frame, of shape {frame.shape}; give one or more rows and columns"
        )
    known = getattr(estimator, "feature_names_in_", None)
    if reset or known is None:
        return frame
    missing = [name for name in known if name not in frame.columns]
    extra = [name for name in names if name not in known]
    if missing:
        has = f" and has {listed(extra, 30)} besides" if extra else ""
        raise UserError(
            f"X has other columns than in fit: it lacks {listed(missing, 30)}{has}; give the same "
            "columns"
        )
    if extra:
        several = "columns" if len(extra) > 1 else "column"
        warnings.warn(
            f"ignored {several} {listed(extra, 30)} of X, which fit did not see", stacklevel=6
        )
    return frame[list(known)]


def _rows_of_frame(frame: Frame) -> GivenRows:
    frame = plain_cells(frame)
    categorical = [str(name) for name, dtype in frame.dtypes.items() if dtype == "category"]
    columns = {
        name: cells.to_numpy() if cells.dtype == np.float64 else cells
        for name, cells in simplify(frame).items()
    }
    return GivenRows(columns, len(frame), tuple(categorical))


def _rows_of_array(estimator: BaseEstimator, array: NDArray[Any]) -> GivenRows:
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{place}" for place in range(array.shape[1])]
    if array.dtype.kind in "OUS":
        pandas = needed("pandas", "an array with words")
        return _rows_of_frame(pandas.DataFrame(array.astype(object), columns=names))
    columns = zip(names, array.astype(np.float64).T, strict=True)
    return GivenRows(dict(columns), len(array))


def _expect_labels(y: Any) -> None:
    """Raise if a row has no label."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        return  # scikit-learn says what is wrong
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        gone = np.asarray(pandas.isna(labels))
    else:
        gone = np.asarray([label is None or label != label for label in labels])
    if gone.any():
        places = np.flatnonzero(gone).tolist()
        raise UserError(
            f"y has no label in {len(places)} of {len(labels)} rows, first in row {places[0]} "
            "(counted from 0); fill them in or leave these rows out"
        )


# ---------------------------------------------------------------------------- as the model takes it


@dataclass(frozen=True)
class PreparedColumns:
    """Columns as ``hma train`` prepares them: numbers standardised, dates, words one-hot.

    Args:
        columns: What each column is, fixed by the rows of the first call.
        scaler: Moments of the columns of numbers over the rows of all calls; None leaves numbers as
            they are.
    """

    columns: tuple[Column, ...]
    scaler: StandardScaler | None

    @property
    def width(self) -> int:
        """Values of a row."""
        return width_of(self.columns)

    def values(self, given: GivenRows, places: Integers | None = None) -> Floats:
        """Return rows as the model takes them, ``(N, F)``.

        Args:
            given: The rows.
            places: Their numbers, for messages; None counts from 0.
        """
        rows = np.arange(len(given)) if places is None else places
        out = np.zeros((len(given), self.width))
        write_columns(self.columns, _by_name(given, self.columns), rows, out)
        return out

    def learn(self, given: GivenRows, places: Integers, weight: Floats) -> "PreparedColumns":
        """Return what is known with more rows: the moments of numbers are those of all so far.

        Args:
            given: The rows.
            places: Their numbers, for messages.
            weight: What each of them counts.
        """
        own = [column for column in self.columns if isinstance(column, NumberColumn)]
        moments: dict[str, tuple[float, float]] = {column.name: (0.0, 1.0) for column in own}
        if self.scaler is not None and own:
            table = _by_name(given, self.columns)
            cells = [numbers(column.name, table[column.name], places) for column in own]
            self.scaler.partial_fit(np.column_stack(cells), sample_weight=weight)
            pairs = zip(self.scaler.mean_.tolist(), self.scaler.scale_.tolist(), strict=True)
            moments = dict(zip(moments, pairs, strict=True))
        columns = (
            replace(column, mean=moments[column.name][0], std=moments[column.name][1])
            if isinstance(column, NumberColumn)
            else column
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))


def _by_name(given: GivenRows, columns: Sequence[Column]) -> dict[str, Floats | Series]:
    """Return cells by the names of the columns they are for; numbers are words where words were."""
    table = {}
    for column, cells in zip(columns, given.columns.values(), strict=True):
        numeric = isinstance(column, NumberColumn) or column.width == 0
        table[column.name] = cells
        if isinstance(cells, np.ndarray) and not numeric:
            table[column.name] = needed("pandas", "a column of words or dates").Series(cells)
    return table


def fit_inputs(given: GivenRows, places: Integers, *, standardize: bool) -> PreparedColumns:
    """Learn from the rows of the first call what each column is.

    Args:
        given: The rows.
        places: Their numbers, for messages.
        standardize: Whether numbers are brought to mean 0 and variance 1.
    """
    options = PreparationOptions(categorical=given.categorical)
    columns = fit_columns(list(given.columns), given.columns, places, options)
    if width_of(columns) == 0:
        raise UserError("X has no column with values; give one that is not empty in every row")
    return PreparedColumns(columns, StandardScaler() if standardize else None)
