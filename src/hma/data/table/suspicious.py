"""Columns that may not be what they seem: ids, typos, leaks; a line for each before training."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hma.data.labels import ClassLabels, LabelKind, NumberLabels, listed
from hma.data.preparation import Selection
from hma.data.table.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    Frame,
    NumberColumn,
    are_numbers,
    dates,
    formats_of,
    numbers,
    texts,
)
from hma.data.table.source import TableSource
from hma.extras import needed

FEWEST_ROWS = 20
"""Rows below which any column may have distinct values, or fit the target, by chance."""
MOST_LINES = 20
TYPO_SHARE, MARK_SHARE = 0.05, 0.5
"""Most of the cells that may be typos, or one text that stands for a missing number."""
NAMES_SHARE = 0.5
SENTENCE_WORDS = 5
"""Words of a cell, on average, above which a column holds sentences rather than names."""
NAMED_ID = re.compile(r"(^|[_. -])([iI][dD]|key|index|number|no)$|[a-z]I[dD]$")
"""Names of columns whose whole numbers are ids, however far apart."""
LEAK_TRAIN, LEAK_VALIDATION, LEAK_CORRELATION = 0.99, 0.98, 0.999
COMMON_CLASS = 0.9
BINS = 32


def suspicious(columns: Sequence[Column], train: Selection, validation: Selection) -> list[str]:
    """Return a line for each column that may not be what it is taken for.

    Args:
        columns: What the columns are taken for.
        train: The rows they were fitted on.
        validation: Rows that a column which gives the target away must answer.
    """
    table = TableSource.expect(train.source)
    frame = table.frame.iloc[list(train.places)]
    constant = [column.name for column in columns if _is_constant(column, frame)]
    told = [column for column in columns if column.width and column.name not in constant]
    lines = [*_label_lines(train), *_constants(constant), *_duplicates(told, frame)]
    for column in told:
        cells = frame[column.name]
        lines += [*_typo(column, table.frame[column.name])] or [*_identity(column, cells)]
        lines += _order(column, cells)
    lines += _leaks(told, train, validation)
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"and {len(lines) - MOST_LINES + 1} more such columns"]
    return lines


def _label_lines(train: Selection) -> Iterator[str]:
    """Yield a line where the labels are probably of another kind."""
    labels = train.source.labels or ()
    raw = [labels[place] for place in train.places]
    if line := train.source.label_kind.suspicion(raw, train.source.labels_from):
        yield line


def _is_constant(column: Column, frame: Frame) -> bool:
    return column.width > 0 and int(frame[column.name].nunique(dropna=False)) == 1


def _constants(names: Sequence[str]) -> Iterator[str]:
    if names:
        several = "columns" if len(names) > 1 else "column"
        yield f"{several} {listed(names)}: one value in all training rows, so nothing to learn from"


def _duplicates(columns: Sequence[Column], frame: Frame) -> Iterator[str]:
    hashes = needed("pandas", "reading a table").util.hash_pandas_object
    seen: dict[bytes, str] = {}
    for column in columns:
        content = hashes(frame[column.name], index=False).to_numpy().tobytes()
        first = seen.setdefault(content, column.name)
        if first != column.name:
            yield f"column {column.name!r}: the same as {first!r}; {_drop(column)}"


def _typo(column: Column, cells: Any) -> Iterator[str]:
    """Yield a line for columns taken as words though all but a few cells are numbers or dates."""
    if not isinstance(column, CategoryColumn):
        return
    known = cells.notna().to_numpy()
    fine = np.zeros(len(cells), dtype=bool)
    fine[known] = are_numbers(cells[known])
    wrong = np.flatnonzero(known & ~fine)
    what = "numbers"
    if fine.sum() < known.sum() / 2:
        best = formats_of(cells[known].iloc[:1]) or formats_of(cells[known].iloc[-1:])
        wrong, what = _no_dates(cells, known, best), "dates"
    values = Counter(str(cells.iloc[place]) for place in wrong)
    share = len(wrong) / max(int(known.sum()), 1)
    if known.sum() < FEWEST_ROWS or not wrong.size:
        return
    if share <= TYPO_SHARE or (len(values) == 1 and share <= MARK_SHARE):
        rows = listed(wrong.tolist())
        yield (
            f"column {column.name!r}: taken as words because of {listed(list(values), 5)} in row "
            f"{rows} (counted from 0), all else are {what}; correct these cells or leave them empty"
        )


def _no_dates(cells: Any, known: NDArray[np.bool_], formats: Sequence[str]) -> NDArray[np.int64]:
    """Return which cells are not dates in the format that fits best; all if there is no format."""
    missed = [np.flatnonzero(dates(cells, way).isna().to_numpy() & known) for way in formats]
    return min(missed, key=len, default=np.flatnonzero(known))


def _identity(column: Column, cells: Any) -> Iterator[str]:
    """Yield a line for ids, names, and numbers that count the rows."""
    known = cells.dropna()
    different = int(known.nunique())
    if len(known) < FEWEST_ROWS or isinstance(column, DateColumn):
        return
    if isinstance(column, NumberColumn):
        values = numbers(column.name, known, np.arange(len(known)))
        dense = values.max() - values.min() < 2 * len(values) or NAMED_ID.search(column.name)
        if different == len(known) and (values == np.round(values)).all() and dense:
            yield f"column {column.name!r}: a new whole number in every row, an id? {_drop(column)}"
    elif different > NAMES_SHARE * len(known) and _are_sentences(known):
        yield (
            f"column {column.name!r}: sentences, taken as categories; to learn from their words, "
            f"train with --text {quote(column.name)} --backbone hf:FOLDER of a text encoder"
        )
    elif different == len(known):
        yield f"column {column.name!r}: a new value in every row, an id or a name? {_drop(column)}"
    elif different > NAMES_SHARE * len(known):
        yield (
            f"column {column.name!r}: {different} different values in {len(known)} rows, names? "
            f"{_drop(column)}"
        )


def _are_sentences(cells: Any) -> bool:
    return sum(len(str(cell).split()) for cell in cells) >= SENTENCE_WORDS * len(cells)


def _order(column: Column, cells: Any) -> Iterator[str]:
    """Yield a line if either the day or the month may come first."""
    if isinstance(column, DateColumn) and len(formats_of(cells.dropna())) > 1:
        yield (
            f"column {column.name!r}: dates such as {str(cells.dropna().iloc[0])!r} are read with "
            "the month first, though the day may be; write them as 2024-01-31 to be sure"
        )


def _leaks(columns: Sequence[Column], train: Selection, validation: Selection) -> Iterator[str]:
    """Yield a line for each column that all but gives the target away."""
    find = LEAKS.get(type(train.source.label_kind))
    if find is None or len(validation.places) < FEWEST_ROWS:
        return
    both = (train, validation)
    frames = [TableSource.expect(rows.source).rows_at(rows.places) for rows in both]
    labels = [[(rows.source.labels or ())[place] for place in rows.places] for rows in both]
    kind, where = train.source.label_kind, train.source.labels_from
    names = kind.names([*labels[0], *labels[1]], ())
    y = [kind.encode(part, names, where).numpy() for part in labels]
    for column in columns:
        if said := find(column, [frame[column.name] for frame in frames], y):
            yield f"column {column.name!r}: {said}; {_leak(column)}"


def _equals_number(column: Column, cells: Sequence[Any], y: Sequence[NDArray[Any]]) -> str:
    """Say so if a column all but equals the number of the validation rows."""
    if not isinstance(column, NumberColumn) or cells[1].isna().any():
        return ""
    values = numbers(column.name, cells[1], np.arange(len(cells[1])))
    if values.std() == 0 or y[1].std() == 0:
        return ""
    correlation = abs(float(np.corrcoef(values, y[1])[0, 1]))
    return "all but equal to the target" if correlation >= LEAK_CORRELATION else ""


def _tells_class(column: Column, cells: Sequence[Any], y: Sequence[NDArray[Any]]) -> str:
    """Say how many validation rows a column classifies, if it gives their class away.

    A row gets the commonest class of the training rows with its value, or in its part of the
    column's range; of a value that is new, the commonest class of all.
    """
    count = np.bincount(y[0])
    if isinstance(column, DateColumn) or count.max() > COMMON_CLASS * count.sum():
        return ""
    train, other = _values(column, cells)
    if train.max() >= len(train) / 4:  # as many values as rows tell anything
        return ""
    votes = np.zeros((max(train.max(), other.max()) + 1, len(count)))
    np.add.at(votes, (train, y[0]), 1.0)
    told = np.where(votes.any(axis=1), votes.argmax(axis=1), count.argmax())
    right = float((told[other] == y[1]).mean())
    in_train = float((told[train] == y[0]).mean())
    if in_train < LEAK_TRAIN or right < LEAK_VALIDATION:
        return ""
    return f"alone it tells the class of {100 * right:.0f}% of the validation rows"


LEAKS: dict[type[LabelKind], Callable[[Column, Sequence[Any], Sequence[NDArray[Any]]], str]] = {
    NumberLabels: _equals_number,
    ClassLabels: _tells_class,
}
"""What says how a column gives labels of a kind away."""


def _values(column: Column, cells: Sequence[Any]) -> list[NDArray[np.int64]]:
    """Return an id for each distinct cell, or bin of the range, of training and other rows."""
    if isinstance(column, NumberColumn):
        train, other = (numbers(column.name, part, np.arange(len(part))) for part in cells)
        known = np.unique(train[~np.isnan(train)])
        parts = np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1])
        edges = known if len(known) <= BINS else parts
        return [np.searchsorted(edges, values) for values in (train, other)]
    pandas = needed("pandas", "reading a table")
    codes, different = pandas.factorize(np.array(texts(cells[0]), dtype=object))
    found = pandas.Index(different).get_indexer(texts(cells[1]))
    return [codes, np.where(found < 0, len(different), found)]


def _drop(column: Column) -> str:
    return f"leave it out with --drop {quote(column.name)}"


def _leak(column: Column) -> str:
    return f"is it known before the target is? If not, {_drop(column)}"
