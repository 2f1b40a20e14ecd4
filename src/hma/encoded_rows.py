"""Rows as a backbone encoded them, with what belongs to them."""

from typing import NamedTuple

import torch
from torch import Tensor

from hma.many_rows import in_blocks


class EncodedRows(NamedTuple):
    """Rows as the backbone encoded them.

    Shape:
        - ``features`` ``(N, F)``, ``y`` as the target has labels; ``ids`` ``(N,)`` are sample ids
          and ``weight`` ``(N,)`` what each row counts: None for places, and for 1.
    """

    features: Tensor
    y: Tensor
    ids: Tensor | None = None
    weight: Tensor | None = None

    def at(self, places: Tensor) -> "EncodedRows":
        """Return the rows at ``places``."""
        parts = (None if part is None else part[places] for part in self)
        return EncodedRows(*parts)  # type: ignore[arg-type]

    def finite(self) -> "EncodedRows":
        """Return the rows that can be learned from; a memory leaves the others out too."""
        finite = in_blocks(lambda part: part.isfinite().all(dim=1), self.features)
        return self if bool(finite.all()) else self.at(finite.nonzero()[:, 0])

    def at_most(self, count: int) -> "EncodedRows":
        """Return so many rows, or all if they are fewer, taken evenly."""
        count = min(len(self.y), count)
        places = torch.linspace(0, len(self.y) - 1, count, dtype=torch.float64).round().long()
        return self.at(places.to(self.features.device))

    def mean(self, each: Tensor) -> float:
        """Return the mean of one value a row, each by what its row counts."""
        if self.weight is None:
            return float(each.mean())
        return float((each * self.weight).sum() / self.weight.sum())
