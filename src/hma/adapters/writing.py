"""What every adapter does: number the rows, find the model, write a step's batches after it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from hma.errors import UserError
from hma.memory.distributed import world_size
from hma.memory.rows import EncodedRows
from hma.model import MemoryModel
from hma.targets import UNKNOWN

Unpack = Callable[[Any], Sequence[Any]]
"""Takes a batch apart: ``unpack(batch)`` returns ``(x, y)`` or ``(x, y, ids)``."""
BATCHES_OF_IDS = 1000
"""Batches whose ids are kept until those that came again are left out."""


class Held(NamedTuple):
    """A batch that has been learned from and waits for the optimizer's step."""

    x: Any
    y: Tensor
    ids: Tensor | None


def expect_parts(batch: Any) -> Sequence[Any]:
    """Return a batch that is ``(x, y)`` or ``(x, y, ids)``, or say that it needs ``unpack``."""
    if isinstance(batch, tuple | list) and len(batch) in (2, 3):
        return batch
    parts = f" of {len(batch)} parts" if isinstance(batch, tuple | list) else ""
    raise UserError(
        f"batch must be (x, y) or (x, y, ids), got {type(batch).__name__}{parts}; say how to take "
        "it apart: RememberCallback(unpack=lambda batch: (x, y, ids))"
    )


def replay_rows(loader: Any, *, whole: bool = False) -> Iterable[Any]:
    """Return the batches of a DataLoader once more, rows in their order, none drawn by chance.

    Rows that come as a stream cannot come again: none.

    Args:
        loader: What gave the rows in training.
        whole: Whether each of several processes gets all rows, not its part of them.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return ()
    rows: Any = loader.dataset
    shared = world_size() > 1 and not whole
    return DataLoader(
        rows,
        batch_size=loader.batch_size if loader.batch_sampler is None else loader.batch_size or 64,
        sampler=DistributedSampler(rows, shuffle=False) if shared else None,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
        generator=torch.Generator(),  # of its own: the next epoch's order stays what it would be
    )


def find_memory_model(module: nn.Module, given: MemoryModel | None = None) -> MemoryModel:
    """Return ``given``, or the one model with a memory inside ``module``.

    Example:
        >>> find_memory_model(nn.Linear(2, 2))
        Traceback (most recent call last):
        hma.errors.UserError: Linear holds no memory of hma; pass RememberCallback(model=...)
    """
    if given is not None:
        return given
    models = {name: part for name, part in module.named_modules() if isinstance(part, MemoryModel)}
    if len(models) == 1:
        return next(iter(models.values()))
    holds = f"{len(models)} of them ({', '.join(models)})" if models else "no memory of hma"
    raise UserError(f"{type(module).__name__} holds {holds}; pass RememberCallback(model=...)")


class StepWriter:
    """Hold the batches of one optimizer step and write them together when it is done.

    With gradient accumulation a step has several batches: all of them enter the queue, in
    order, and the momentum encoder moves once, as for one batch of their joint size. A memory that
    is learned after the backbone is learned by :meth:`finish`.

    Args:
        model: The model to write into.
        unpack: How a batch is taken apart.

    Example:
        >>> from hma import HMA
        >>> model = HMA(nn.Linear(2, 8), 3, feature_dim=8)
        >>> writer = StepWriter(model, expect_parts)
        >>> writer.hold((torch.rand(2, 2), torch.tensor([0, 2])))
        >>> writer.hold((torch.rand(1, 2), torch.tensor([1])))
        >>> len(model.memory_state().labels)
        0
        >>> writer.write()
        >>> model.memory_state().labels.tolist()
        [0, 2, 1]
    """

    def __init__(self, model: MemoryModel, unpack: Unpack) -> None:
        self.model = model
        self.unpack = unpack
        self.held: list[Held] = []
        self._trained_on: list[Tensor] = []
        if not model.keeps_rows_of_steps:
            model.reset_memory()  # of a backbone that is about to change

    def start(self, batches: Iterable[Any]) -> None:
        """Start slots that are to start from rows and have not; :meth:`finish` does so for others.

        Where rows cannot be asked for again, slots stay, and the first write tells so.

        Args:
            batches: The training rows, on the device of the model.
        """
        if not self.model.waits_for_rows:
            return
        rows = (self._unpack(batch)[:2] for batch in batches)
        first = next(rows, None)
        if first is not None:
            self.model.start_slots(chain([first], rows))

    def hold(self, batch: Any) -> None:
        """Keep a batch that the coming step learns from."""
        held = self._unpack(batch)
        if self.model.keeps_rows_of_steps:
            self.held.append(held)
        elif held.ids is not None:
            self._trained_on.append(held.ids)
            if len(self._trained_on) > BATCHES_OF_IDS:
                self._trained_on = [torch.unique(torch.cat(self._trained_on))]

    def _unpack(self, batch: Any) -> Held:
        parts = self.unpack(batch)
        if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
            raise UserError(f"unpack must return (x, y) or (x, y, ids), got {type(parts).__name__}")
        x, y, ids = (*parts, None) if len(parts) == 2 else parts
        if not isinstance(y, Tensor):
            raise UserError(f"unpack must return class ids y as a tensor, got {type(y).__name__}")
        return Held(x, y, ids)

    @torch.no_grad()
    def write(self) -> None:
        """Write what is held; call it after ``optimizer.step()``."""
        held, self.held = self.held, []
        if len(held) == 1:
            self.model.remember(held[0].x, held[0].y, ids=held[0].ids)
        elif held and self.model.config.has_real_memory:
            features = torch.cat([self.model.encode_for_memory(batch.x) for batch in held])
            labels = torch.cat([batch.y for batch in held])
            ids = torch.cat([_ids(batch) for batch in held])
            self.model.remember(None, labels, features=features, ids=ids)

    def finish(self, batches: Iterable[Any], held_out: Iterable[Any] = ()) -> None:
        """Learn a memory that is learned after the backbone; others are learned by now.

        Args:
            batches: The training rows, all of them in every process. Where they have ids, those
                that no step learned from, as a sampler may leave out, are not remembered.
            held_out: Rows to validate with, for :meth:`hma.VotingMemory.learn_memory`.
        """

        def rows() -> EncodedRows | None:
            found = self.model.encode_rows(self._parts(batch) for batch in batches)
            if found is None or found.ids is None or not self._trained_on:
                return found
            known = torch.cat(self._trained_on).to(found.ids)
            return found.at(torch.isin(found.ids, known).nonzero()[:, 0])

        def others() -> EncodedRows | None:
            return self.model.encode_rows(self._parts(batch)[:2] for batch in held_out)

        self.model.after_training(rows, others)

    def _parts(self, batch: Any) -> tuple[Any, ...]:
        return tuple(part for part in self._unpack(batch) if part is not None)


def _ids(batch: Held) -> Tensor:
    if batch.ids is None:
        return torch.full((len(batch.y),), UNKNOWN, device=batch.y.device)
    return batch.ids.to(batch.y.device)


class WithIds(Dataset[Any]):
    """A data set whose rows bring along which sample they are: their place in it.

    In training no row may read its own stored copy, and ids tell the model which that is. A row
    that is a tuple gets its id as the last part, a dict as ``ids``; any other row comes as a pair
    of row and id.

    Args:
        rows: A data set with a length, whose rows stay at their places.

    Example:
        >>> WithIds([("a", 0), ("b", 1)])[1]
        ('b', 1, 1)
        >>> WithIds([{"text": "a", "label": 0}])[0]
        {'text': 'a', 'label': 0, 'ids': 0}
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        row = self.rows[place]
        if isinstance(row, Mapping):
            return {**row, "ids": place}
        if isinstance(row, tuple | list):
            return (*row, place)
        return row, place
