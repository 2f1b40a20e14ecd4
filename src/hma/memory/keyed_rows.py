"""Real memory with one row for each sample: written again, a sample takes its own place."""

import torch
from torch import Tensor

from hma.memory.blocks import is_large
from hma.memory.growing import Growing
from hma.memory.queue import MemoryQueue, MemoryRows
from hma.targets import Target

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

    growing = ("features", "labels", "ids")

    def __init__(self, size: int | None, feature_dim: int, target: Target) -> None:
        super().__init__(size or 0, feature_dim, target)
        self.bound = size
        self._sorted: tuple[Tensor, int, Tensor, Tensor] | None = None

    @torch.no_grad()
    def write(self, rows: MemoryRows, label_values: Tensor | None = None) -> None:
        """Replace the rows of samples that are here and append the others."""
        if rows.ignore is not None:
            wanted = ~rows.ignore
            rows = MemoryRows(rows.features[wanted], rows.labels[wanted], rows.ids[wanted])
        rows = _last_of_each(rows)
        places = self.find(rows.ids)
        known = places >= 0
        if bool(known.any()):
            at = places[known]
            self.features[at] = rows.features[known].to(self.features.dtype)
            self.labels[at] = rows.labels[known].to(self.labels.dtype)
        if not bool(known.all()):
            new = MemoryRows(rows.features[~known], rows.labels[~known], rows.ids[~known])
            self._make_room(len(new.ids))
            super().write(new)

    @torch.no_grad()
    def take(self, rows: MemoryRows) -> bool:
        """Hold rows instead of all that is here, without a copy; return whether that can be.

        It cannot in a memory with a bound, or where rows share an id or are to be left out.
        """
        ordered = rows.ids.sort().values
        single = not bool(((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)).any())
        if self.bound is not None or rows.ignore is not None or not single:
            return False
        self.fill(features=rows.features, labels=rows.labels, ids=rows.ids)
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

    def drawn(self, count: int | None, generator: torch.Generator | None = None) -> Tensor:
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
            self.features = self.features[:held][stay]
            self.labels, self.ids = self.labels[:held][stay], self.ids[:held][stay]
            self.size = held - count
            self.written.fill_(self.size)
        else:
            kept = self.rows()
            self.clear()
            super().write(MemoryRows(kept.features[stay], kept.labels[stay], kept.ids[stay]))
        return count

    @torch.no_grad()
    def trim(self) -> None:
        """Give up the places of a memory without a bound that hold no row."""
        held = int(self.written)
        if self.bound is None and held < self.size:
            self.features, self.labels = self.features[:held].clone(), self.labels[:held].clone()
            self.ids, self.size = self.ids[:held].clone(), held

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
        self.size = size

    def _load_from_state_dict(self, *args: object) -> None:
        super()._load_from_state_dict(*args)  # type: ignore[arg-type]
        self.size = len(self.ids)
        self._sorted = None

    def extra_repr(self) -> str:  # noqa: D102
        return f"bound={self.bound}, feature_dim={self.feature_dim}"


def _last_of_each(rows: MemoryRows) -> MemoryRows:
    """Return the rows with the last one alone of those that share an id."""
    ids = rows.ids
    later = (ids[:, None] == ids[None]).triu(diagonal=1).any(dim=1) & (ids >= 0)
    if not bool(later.any()):
        return rows
    return MemoryRows(rows.features[~later], rows.labels[~later], ids[~later])
