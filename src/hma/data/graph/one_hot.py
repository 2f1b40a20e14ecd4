"""Labels of nodes kept as codes, which become one-hot features when a batch is cut."""

import torch
from torch import Tensor

from hma.data.graph.store import Cut


def codes_of(labels: Tensor, kinds: tuple[tuple[int, ...], ...]) -> Tensor:
    """Return the place of each label among all known values, ``(N, K)``; the last for others."""
    width = sum(map(len, kinds))
    codes, first = [], 0
    for column, values in zip(labels.T, kinds, strict=True):
        known = torch.tensor(values)
        place = torch.searchsorted(known, column.contiguous()).clamp(max=len(known) - 1)
        codes.append(torch.where(known[place] == column, place + first, width))
        first += len(values)
    return torch.stack(codes, dim=1)


def with_features(table: Tensor, cut: Cut) -> Cut:
    """Return a cut with features ``x`` in place of codes, values and vectors."""
    parts = []
    if "codes" in cut:
        each = [table[column] for column in cut.pop("codes").unbind(dim=1)]
        parts.append(each[0] if len(each) == 1 else torch.stack(each).sum(dim=0))
    if "values" in cut:
        parts.append(cut.pop("values"))
    if "vectors" in cut:
        parts.append(cut.pop("vectors").float())  # whatever they are kept as
    return {**cut, "x": parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)}
