"""Rows: as they come in batches, as a backbone encodes them, and as a memory stores them."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hma.checks import expect_shape
from hma.memory.blocks import evenly_spaced, in_blocks, is_large
from hma.memory.distributed import gather_rows, world_size
from hma.memory.growing import Growing
from hma.targets import UNKNOWN, Target

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
            f"{', '.join(map(repr, LABELS))}, or graphs with labels y, got {_describe(batch)}; "
            f"for one batch pass [(x, y)]"
        )
    return x, y, ids


def _describe(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a dict with {', '.join(map(repr, batch))}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {', '.join(type(part).__name__ for part in batch)}"
    return type(batch).__name__


def expect_labels(target: Target, y: Tensor, count: int, name: str) -> None:
    """Raise unless ``y`` are labels of ``count`` rows; waits for the device."""
    try:
        target.check(y.cpu(), count)
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
        return self.at(evenly_spaced(len(self.y), count).to(self.features.device))

    def mean(self, each: Tensor) -> float:
        """Return the mean of one value a row, each by what its row counts."""
        if self.weight is None:
            return float(each.mean())
        return float((each * self.weight).sum() / self.weight.sum())


# ---------------------------------------------------------------------------------- rows in a store


class MemoryRows(NamedTuple):
    """Rows on their way into the queue, or read back from it; one entry per row in each field."""

    features: Tensor
    labels: Tensor
    ids: Tensor
    ignore: Tensor | None = None
    weight: Tensor | None = None
    """What each row counts, where a store keeps that; None for 1."""

    def at(self, places: Tensor) -> "MemoryRows":
        """Return the rows at ``places``."""
        parts = (None if part is None else part[places] for part in self)
        return MemoryRows(*parts)  # type: ignore[arg-type]


def check_ids(ids: object, count: int | None, device: torch.device) -> Tensor:
    """Return sample ids ``(count,)`` on ``device``, or say what does not fit.

    A negative number is no id, and becomes -1.

    >>> check_ids([3, 4], 2, torch.device("cpu"))
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


def check_rows(
    target: Target, features: Tensor, y: Tensor, ignore: Tensor | None, ids: Tensor | None
) -> MemoryRows:
    """Return a batch as rows for the queue, or say which argument does not fit."""
    count, device = len(features), features.device
    if ignore is not None:
        expect_shape("ignore", ignore, count)
        if ignore.dtype != torch.bool:
            raise TypeError(f"ignore must be of dtype torch.bool, got {ignore.dtype}")
        ignore = ignore.to(device)
    labels = target.check(y.to(device), count, ignore)
    if ids is None:
        ids = torch.full((count,), UNKNOWN, device=device)
    checked = check_ids(ids, count, device)
    if ids.device.type == "cpu" and bool((ids.long() < UNKNOWN).any()):  # else it waits
        raise ValueError(
            f"ids must be 0 or more, or {UNKNOWN} for a row without one, got {int(ids.min())}; "
            "number the samples from 0"
        )
    ignore = _ignore_non_finite(features, ignore)
    return MemoryRows(features, labels, checked, ignore)


def _ignore_non_finite(features: Tensor, ignore: Tensor | None) -> Tensor | None:
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


def gather_memory_rows(rows: MemoryRows) -> MemoryRows:
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
        stores = self._stores(rows)
        if self.keeps_label_values:
            assert label_values is not None
            stores.append((self.label_values, label_values))
        if rows.ignore is None:
            self._append(stores)
        else:
            self._append_unless(rows.ignore, stores)

    def _stores(self, rows: MemoryRows) -> list[tuple[Tensor, Tensor]]:
        """Return each buffer of rows with what is to be written into it."""
        return [(self.features, rows.features), (self.labels, rows.labels), (self.ids, rows.ids)]

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


# ---------------------------------------------------------------------------- a row for each sample


LEAST_PLACES = 64
"""Places that a memory without a bound starts with when its first row comes."""


class KeyedRows(MemoryQueue, Growing):
    """Keep one row for each sample id; rows without an id are kept as they come.

    Args:
        size: Most rows to keep, the oldest overwritten first; None keeps every sample.
        feature_dim: Width of the stored features, ``F``.
        target: What a label is.

    Example:
        >>> from hma.targets import Classes
        >>> rows = KeyedRows(size=None, feature_dim=1, target=Classes(2))
        >>> labels, ids = torch.tensor([0, 1]), torch.tensor([7, 8])
        >>> rows.write(MemoryRows(torch.tensor([[1.0], [2.0]]), labels, ids))
        >>> rows.write(MemoryRows(torch.tensor([[3.0]]), labels[:1], ids[1:]))
        >>> rows.rows().features.flatten().tolist(), rows.rows().ids.tolist()
        ([1.0, 3.0], [7, 8])
    """

    growing = ("features", "labels", "ids", "weight")
    weight: Tensor

    def __init__(self, size: int | None, feature_dim: int, target: Target) -> None:
        super().__init__(size or 0, feature_dim, target)
        self.register_buffer("weight", torch.ones(self.size))
        self.bound = size
        self._sorted: tuple[Tensor, int, Tensor, Tensor] | None = None

    @torch.no_grad()
    def write(self, rows: MemoryRows, label_values: Tensor | None = None) -> None:
        """Replace the rows of samples that are here and append the others."""
        if rows.ignore is not None:
            rows = rows.at(~rows.ignore)._replace(ignore=None)
        rows = _keep_last_of_each(rows)
        places = self.find(rows.ids)
        known = places >= 0
        if bool(known.any()):
            for store, new in self._stores(rows.at(known)):
                store[places[known]] = new.to(store.dtype)
        if not bool(known.all()):
            self._make_room(int((~known).sum()))
            super().write(rows.at(~known))

    def _stores(self, rows: MemoryRows) -> list[tuple[Tensor, Tensor]]:
        """Return each buffer of rows with what is to be written into it."""
        weight = rows.features.new_ones(len(rows.ids)) if rows.weight is None else rows.weight
        return [*super()._stores(rows), (self.weight, weight)]

    def clear(self) -> None:
        """Forget every row."""
        super().clear()
        self.weight.fill_(1.0)

    def rows(self) -> MemoryRows:
        """Return the rows held now, oldest first, with what each counts."""
        return super().rows()._replace(weight=self.weight[self.order()])

    @torch.no_grad()
    def take(self, rows: MemoryRows) -> bool:
        """Hold rows instead of all that is here, without a copy; return whether that can be.

        It cannot in a memory with a bound, or where rows share an id or are to be left out.
        """
        ordered = rows.ids.sort().values
        single = not bool(((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)).any())
        if self.bound is not None or rows.ignore is not None or not single:
            return False
        stores = dict(zip(self.growing, (new for _, new in self._stores(rows)), strict=True))
        self.fill(**stores)
        self.size = len(rows.ids)
        self.written.fill_(self.size)
        return True

    def find(self, ids: Tensor) -> Tensor:
        """Return the place of each sample, ``(B,)``; -1 for one that is not here."""
        held = self._sorted
        if held is None or held[0] is not self.ids or held[1] != self.ids._version:
            held = self._sorted = (self.ids, self.ids._version, *self.ids.sort())
        _, _, ordered, places = held
        if len(ordered) == 0:
            return torch.full_like(ids, -1)
        at = torch.searchsorted(ordered, ids.contiguous()).clamp(max=len(ordered) - 1)
        return torch.where((ordered[at] == ids) & (ids >= 0), places[at], -1)

    def draw(self, count: int | None, generator: torch.Generator | None = None) -> Tensor:
        """Return ``count`` places by chance, some of them maybe twice; all places if few enough.

        Args:
            count: How many; None for all.
            generator: Draws them; torch's own of the device if not given.
        """
        device = self.ids.device
        if count is None or count >= self.size:
            return torch.arange(self.size, device=device)
        where = device if generator is None else generator.device
        return torch.randint(self.size, (count,), generator=generator, device=where).to(device)

    @torch.no_grad()
    def forget(self, ids: Tensor) -> int:
        """Take the rows of these samples out, and return how many there were.

        The others keep their order and a memory without a bound gives their places up, so that
        every read is, to the last bit, that of a memory which never had them.
        """
        stay = ~torch.isin(self.ids[self.order()], ids)
        count = len(stay) - int(stay.sum())
        if not count:
            return 0
        if self.bound is None:
            held = len(stay)
            for name in self.growing:
                setattr(self, name, getattr(self, name)[:held][stay])
            self.size = held - count
            self.written.fill_(self.size)
        else:
            kept = self.rows()
            self.clear()
            super().write(kept.at(stay))
        return count

    @torch.no_grad()
    def trim(self) -> None:
        """Give up the places of a memory without a bound that hold no row."""
        held = int(self.written)
        if self.bound is None and held < self.size:
            for name in self.growing:
                setattr(self, name, getattr(self, name)[:held].clone())
            self.size = held

    def _make_room(self, count: int) -> None:
        """Grow to twice the size (many rows by an eighth), or as far as rows to come need."""
        held = int(self.written)
        if self.bound is not None or held + count <= self.size:
            return
        grown = self.size + self.size // 8 if is_large(self.size) else 2 * self.size
        size = max(grown, held + count, LEAST_PLACES)
        more = size - self.size
        self.features = torch.cat([self.features, self.features.new_zeros(more, self.feature_dim)])
        self.labels = torch.cat([self.labels, self.target.unknown(more).to(self.labels)])
        self.ids = torch.cat([self.ids, self.ids.new_full((more,), -1)])
        self.weight = torch.cat([self.weight, self.weight.new_ones(more)])
        self.size = size

    def _load_from_state_dict(self, *args: object) -> None:
        super()._load_from_state_dict(*args)  # type: ignore[arg-type]
        self.size = len(self.ids)
        self._sorted = None

    def extra_repr(self) -> str:  # noqa: D102
        return f"bound={self.bound}, feature_dim={self.feature_dim}"


def _keep_last_of_each(rows: MemoryRows) -> MemoryRows:
    """Return the rows with the last one alone of those that share an id."""
    ids = rows.ids
    later = (ids[:, None] == ids[None]).triu(diagonal=1).any(dim=1) & (ids >= 0)
    if not bool(later.any()):
        return rows
    return rows.at(~later)
