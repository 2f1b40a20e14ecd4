"""Rows as they come in batches, and as a backbone encoded them, with what belongs to them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hma.memory.blocks import in_blocks
from hma.targets import Target

LABELS = ("y", "label", "labels")
"""Keys of a batch that is a dict, one of which holds its labels."""


def split_batch(batch: Any, name: str) -> tuple[Any, Tensor, Tensor | None]:
    """Return inputs, labels and sample ids of a batch, or say what it must be.

    Args:
        batch: ``(x, y)`` or ``(x, y, ids)``; a dict of inputs and labels, of which the backbone
            gets the inputs; or what has its labels as ``y``, such as a PyG ``Batch``.
        name: What it was given as.

    Example:
        >>> split_batch({"words": torch.ones(2, 3), "labels": torch.tensor([0, 1])}, "batches")
        ({'words': tensor([[1., 1., 1.],
                [1., 1., 1.]])}, tensor([0, 1]), None)
    """
    x, y, ids = batch, getattr(batch, "y", None), None
    if isinstance(batch, tuple | list) and len(batch) in (2, 3):
        x, y, *rest = batch
        ids = rest[0] if rest else None
    elif isinstance(batch, Mapping):
        labels = [key for key in LABELS if key in batch]
        y = batch[labels[0]] if len(labels) == 1 else None
        x = {key: value for key, value in batch.items() if key not in labels}
    if not isinstance(y, Tensor):
        raise TypeError(
            f"{name} must hold (x, y) or (x, y, ids) with a tensor y, dicts with one of "
            f"{', '.join(map(repr, LABELS))}, or graphs with labels y, got {_described(batch)}; "
            f"for one batch pass [(x, y)]"
        )
    return x, y, ids


def _described(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a dict with {', '.join(map(repr, batch))}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {', '.join(type(part).__name__ for part in batch)}"
    return type(batch).__name__


def expect_labels(target: Target, y: Tensor, count: int, name: str) -> None:
    """Raise unless ``y`` are labels of ``count`` rows; waits for the device."""
    try:
        target.checked(y.cpu(), count)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


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
