"""Real memory: a first-in-first-out store of past training rows."""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hma.checks import expect_shape
from hma.memory.blocks import in_blocks
from hma.memory.distributed import gather_rows, world_size
from hma.targets import UNKNOWN, Target


class MemoryRows(NamedTuple):
    """Rows on their way into the queue, or read back from it; one entry per row in each field."""

    features: Tensor
    labels: Tensor
    ids: Tensor
    ignore: Tensor | None = None


def checked_ids(ids: object, count: int | None, device: torch.device) -> Tensor:
    """Return sample ids ``(count,)`` on ``device``, or say what does not fit.

    A negative number is no id, and becomes -1.

    >>> checked_ids([3, 4], 2, torch.device("cpu"))
    Traceback (most recent call last):
    TypeError: ids must be a tensor of whole numbers, got list; pass torch.tensor(ids)
    """
    if not isinstance(ids, Tensor):
        raise TypeError(
            f"ids must be a tensor of whole numbers, got {type(ids).__name__}; "
            "pass torch.tensor(ids)"
        )
    expect_shape("ids", ids, count)
    if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        raise TypeError(f"ids must be of an integer dtype, got {ids.dtype}; pass ids.long()")
    return ids.to(device).long().clamp(min=UNKNOWN)


def checked_rows(
    target: Target, features: Tensor, y: Tensor, ignore: Tensor | None, ids: Tensor | None
) -> MemoryRows:
    """Return a batch as rows for the queue, or say which argument does not fit."""
    count, device = len(features), features.device
    if ignore is not None:
        expect_shape("ignore", ignore, count)
        if ignore.dtype != torch.bool:
            raise TypeError(f"ignore must be of dtype torch.bool, got {ignore.dtype}")
        ignore = ignore.to(device)
    labels = target.checked(y.to(device), count, ignore)
    if ids is None:
        ids = torch.full((count,), UNKNOWN, device=device)
    checked = checked_ids(ids, count, device)
    if ids.device.type == "cpu" and bool((ids.long() < UNKNOWN).any()):  # else it waits
        raise ValueError(
            f"ids must be 0 or more, or {UNKNOWN} for a row without one, got {int(ids.min())}; "
            "number the samples from 0"
        )
    ignore = _with_rows_that_are_not_finite(features, ignore)
    return MemoryRows(features, labels, checked, ignore)


def _with_rows_that_are_not_finite(features: Tensor, ignore: Tensor | None) -> Tensor | None:
    """Return the mask of rows not to store: one NaN in the queue would spoil every prediction."""
    bad = ~in_blocks(lambda part: part.isfinite().all(dim=1), features)  # (B,)
    if features.device.type == "cpu":  # elsewhere, asking whether there are any would wait
        if not bad.any():
            return ignore
        warnings.warn(
            f"{int(bad.sum())} of {len(bad)} rows hold NaN or infinity in their features and were "
            "not stored; look at the input and the learning rate",
            stacklevel=6,
        )
    return bad if ignore is None else bad | ignore


def rows_of_all_ranks(rows: MemoryRows) -> MemoryRows:
    """Return the rows of every process in rank order, the ignored ones left behind."""
    if world_size() == 1:
        return rows
    wanted = slice(None) if rows.ignore is None else ~rows.ignore
    features, labels, ids = (part[wanted] for part in rows[:3])
    if labels.shape == ids.shape and labels.dtype == ids.dtype:  # class ids: both in one message
        labels, ids = gather_rows(torch.stack([labels, ids], dim=1)).unbind(dim=1)
        return MemoryRows(gather_rows(features), labels, ids)
    return MemoryRows(gather_rows(features), gather_rows(labels), gather_rows(ids))


class MemoryQueue(nn.Module):
    """Keep the last ``size`` rows written, oldest overwritten first.

    Everything that decides what the next read returns is a buffer, so a queue survives
    ``state_dict``, ``.to(device)`` and a resumed run unchanged.

    Args:
        size: Number of rows kept, ``M``.
        feature_dim: Width of the stored features, ``F``.
        target: What a label is.
        value_dim: Width of label embeddings stored by value, ``L``; None stores the labels
            alone, to be embedded anew at every read.

    Shape:
        - ``write``: ``(B, F)`` for any ``B >= 0``; of more than ``M`` rows the last ``M`` stay.
        - ``rows``: ``(N, F)`` with ``N = min(rows written, M)``, oldest first.

    Example:
        >>> from hma.targets import Classes
        >>> queue = MemoryQueue(size=3, feature_dim=1, target=Classes(2))
        >>> batch = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
        >>> queue.write(MemoryRows(batch, labels=torch.tensor([0, 1, 0, 1]), ids=torch.arange(4)))
        >>> queue.rows().features.flatten().tolist()
        [2.0, 3.0, 4.0]
    """

    features: Tensor
    labels: Tensor
    ids: Tensor
    label_values: Tensor
    written: Tensor

    def __init__(
        self, size: int, feature_dim: int, target: Target, value_dim: int | None = None
    ) -> None:
        super().__init__()
        if size < 0:
            raise ValueError(f"size must be at least 0, got {size}")
        self.size = size
        self.feature_dim = feature_dim
        self.target = target
        self.keeps_label_values = value_dim is not None
        self.register_buffer("features", torch.zeros(size, feature_dim))
        self.register_buffer("labels", target.unknown(size))
        self.register_buffer("ids", torch.full((size,), UNKNOWN))
        if value_dim is not None:
            self.register_buffer("label_values", torch.zeros(size, value_dim))
        self.register_buffer("written", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def write(self, rows: MemoryRows, label_values: Tensor | None = None) -> None:
        """Append ``rows`` except those marked ``ignore``; gradients do not flow into the queue."""
        expect_shape("features", rows.features, None, self.feature_dim)
        stores = [(self.features, rows.features), (self.labels, rows.labels), (self.ids, rows.ids)]
        if self.keeps_label_values:
            assert label_values is not None
            stores.append((self.label_values, label_values))
        if rows.ignore is None:
            self._append(stores)
        else:
            self._append_unless(rows.ignore, stores)

    def _append(self, stores: list[tuple[Tensor, Tensor]]) -> None:
        count = len(stores[0][1])
        kept = min(count, self.size)
        step = torch.arange(kept, device=self.written.device)  # (K,)
        places = (self.written + count - kept + step) % max(self.size, 1)
        for store, new in stores:
            store[places] = new[count - kept :].to(store.dtype)
        self.written += count

    def _append_unless(self, ignore: Tensor, stores: list[tuple[Tensor, Tensor]]) -> None:
        """Append with shapes that do not depend on the mask: no sync, no second compile."""
        kept = min(len(ignore), self.size)
        wanted = torch.argsort(ignore.to(torch.uint8), stable=True)  # (B,) wanted rows first
        count = (~ignore).sum()
        skipped = (count - self.size).clamp(min=0)
        step = torch.arange(kept, device=self.written.device)  # (K,)
        chosen = wanted[(skipped + step).clamp(max=max(len(ignore) - 1, 0))]
        places = (self.written + skipped + step) % max(self.size, 1)
        fresh = skipped + step < count
        for store, new in stores:
            mask = fresh.view(-1, *[1] * (store.dim() - 1))
            store[places] = torch.where(mask, new[chosen].to(store.dtype), store[places])
        self.written += count

    @torch.no_grad()
    def clear(self) -> None:
        """Forget every row."""
        self.features.zero_()
        self.labels.copy_(self.target.unknown(self.size))
        self.ids.fill_(UNKNOWN)
        if self.keeps_label_values:
            self.label_values.zero_()
        self.written.zero_()

    def filled(self) -> Tensor:
        """Return which of the ``M`` places hold a row, ``(M,)``."""
        return torch.arange(self.size, device=self.written.device) < self.written

    def order(self) -> Tensor:
        """Return the places that hold a row, oldest first; waits for the device."""
        written = int(self.written)
        if written <= self.size:
            return torch.arange(written, device=self.written.device)
        step = torch.arange(self.size, device=self.written.device)
        return (written + step) % self.size

    def rows(self) -> MemoryRows:
        """Return the rows held now, oldest first; empty places are never returned."""
        places = self.order()
        return MemoryRows(self.features[places], self.labels[places], self.ids[places])

    def extra_repr(self) -> str:  # noqa: D102
        return f"size={self.size}, feature_dim={self.feature_dim}"
