"""Tables held in an array."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hma.data.source import array_fingerprint
from hma.data.table.files import Frame, TableRows, described
from hma.extras import needed
from hma.targets import Classes


class ArrayTable(TableRows):
    """Rows of numbers ``(N, F)``; the columns are named ``x0``, ``x1``, and so on.

    Args:
        name: Short name.
        x: The numbers; NaN where missing.
        labels: Raw label of each row, if there are any.
        label_kind: What the labels are.
        label_names: Names of several labels.
    """

    def __init__(
        self,
        name: str,
        x: NDArray[Any],
        labels: Sequence[Any] | None = None,
        *,
        label_kind: str = Classes.kind,
        label_names: tuple[str, ...] = ("y",),
    ) -> None:
        self.name = name
        self.x = x
        self.labels = labels
        self.label_kind = label_kind
        self.label_names = label_names
        self.target = () if labels is None else label_names
        self.columns = tuple(f"x{place}" for place in range(x.shape[1]))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def labels_from(self) -> str:
        """The array."""
        return f"y of {self.name}"

    @cached_property
    def frame(self) -> Frame:
        """All rows, the labels beside them."""
        pandas = needed("pandas", "a table")
        frame = pandas.DataFrame(self.x.astype(np.float64), columns=list(self.columns))
        if self.labels is None:
            return frame
        several = len(self.target) > 1
        columns = zip(*self.labels, strict=True) if several else [self.labels]
        return frame.assign(**dict(zip(self.target, map(list, columns), strict=True)))

    def without_labels(self) -> Self:
        """Return the numbers alone."""
        part = super().without_labels()
        part.target = ()
        part.__dict__.pop("frame", None)
        return part

    def chunks(self, rows: int) -> Iterator[Frame]:
        """Yield all rows in order, ``rows`` at a time."""
        for first in range(0, len(self.x), rows):
            yield self.frame.iloc[first : first + rows].reset_index(drop=True)

    def describe(self, place: int) -> str:
        """Return the row number and the first few values."""
        return described(place, dict(zip(self.columns, self.x[place].tolist(), strict=True)))

    def fingerprint(self) -> str:
        """Return the SHA-256 of numbers and labels."""
        return array_fingerprint(self.x, self.labels)
