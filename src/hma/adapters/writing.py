"""What every adapter does: find the model, hold the batches of a step, write them after it."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from hma.distributed import world_size
from hma.errors import UserError
from hma.key_learning import learn_memory
from hma.model import HMA
from hma.targets import UNKNOWN

Unpack = Callable[[Any], Sequence[Any]]
"""Takes a batch apart: ``unpack(batch)`` returns ``(x, y)`` or ``(x, y, ids)``."""


class Held(NamedTuple):
    """A batch that has been learned from and waits for the optimizer's step."""

    x: Any
    y: Tensor
    ids: Tensor | None


def as_it_is(batch: Any) -> Sequence[Any]:
    """Return a batch that is ``(x, y)`` or ``(x, y, ids)``, or say that it needs ``unpack``."""
    if isinstance(batch, tuple | list) and len(batch) in (2, 3):
        return batch
    parts = f" of {len(batch)} parts" if isinstance(batch, tuple | list) else ""
    raise UserError(
        f"batch must be (x, y) or (x, y, ids), got {type(batch).__name__}{parts}; say how to take "
        "it apart: RememberCallback(unpack=lambda batch: (x, y, ids))"
    )


def rows_again(loader: Any, *, whole: bool = False) -> Iterable[Any]:
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


def find_hma(module: nn.Module, given: HMA | None = None) -> HMA:
    """Return ``given``, or the one HMA inside ``module``.

    Example:
        >>> find_hma(nn.Linear(2, 2))
        Traceback (most recent call last):
        hma.errors.UserError: Linear holds no hma.HMA; pass RememberCallback(model=...)
    """
    if given is not None:
        return given
    models = {name: part for name, part in module.named_modules() if isinstance(part, HMA)}
    if len(models) == 1:
        return next(iter(models.values()))
    holds = f"{len(models)} of them ({', '.join(models)})" if models else "no hma.HMA"
    raise UserError(f"{type(module).__name__} holds {holds}; pass RememberCallback(model=...)")


class StepWriter:
    """Hold the batches of one optimizer step and write them together when it is done.

    With gradient accumulation a step has several batches: all of them enter the queue, in
    order, and the momentum encoder moves once, as for one batch of their joint size. Rows that
    vote while the backbone trains are encoded again before they are relied on, see :meth:`refresh`;
    a memory that is learned after it is learned by :meth:`finish`.

    Args:
        model: The model to write into.
        unpack: How a batch is taken apart.

    Example:
        >>> from hma import HMAConfig
        >>> model = HMA(nn.Linear(2, 8), 3, HMAConfig.paper(), feature_dim=8)
        >>> writer = StepWriter(model, as_it_is)
        >>> writer.hold((torch.rand(2, 2), torch.tensor([0, 2])))
        >>> writer.hold((torch.rand(1, 2), torch.tensor([1])))
        >>> len(model.memory_state().labels)
        0
        >>> writer.write()
        >>> model.memory_state().labels.tolist()
        [0, 2, 1]
    """

    def __init__(self, model: HMA, unpack: Unpack) -> None:
        self.model = model
        self.unpack = unpack
        self.held: list[Held] = []
        self.stale = False
        self._trained_on: list[Tensor] = []
        if model.config.mixes:
            model.reset_memory()  # of a backbone that is about to change

    def start(self, batches: Iterable[Any]) -> None:
        """Start slots that are to start from rows and have not; :meth:`finish` does so for others.

        Where rows cannot be asked for again, slots stay, and the first write tells so.

        Args:
            batches: The training rows, on the device of the model.
        """
        learned = self.model.synthetic
        if learned is None or not learned.waits or self.model.config.mixes:
            return
        rows = (self._taken_apart(batch)[:2] for batch in batches)
        first = next(rows, None)
        if first is not None:
            self.model.start_slots(chain([first], rows))

    def hold(self, batch: Any) -> None:
        """Keep a batch that the coming step learns from."""
        held = self._taken_apart(batch)
        if not self.model.config.mixes:
            self.held.append(held)
        elif held.ids is not None:
            self._trained_on.append(held.ids)

    def _taken_apart(self, batch: Any) -> Held:
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
        self.stale = self.stale or bool(held)
        if len(held) == 1:
            self.model.remember(held[0].x, held[0].y, ids=held[0].ids)
        elif held and self.model.config.has_real_memory:
            features = torch.cat([self.model.encode_for_memory(batch.x) for batch in held])
            labels = torch.cat([batch.y for batch in held])
            ids = torch.cat([_ids(batch) for batch in held])
            self.model.remember(None, labels, features=features, ids=ids)

    def refresh(self, batches: Iterable[Any]) -> None:
        """Write the rows that are held in a memory that votes again, with the weights of now.

        Nothing is done where nothing was written since the last time, and for rows without ids.

        Args:
            batches: The training rows, on the device of the model; others among them are left out.
        """
        if self._trained_on:
            self._trained_on = [torch.unique(torch.cat(self._trained_on))]
        if self.stale and self.model.config.votes:
            self.model.refresh(self._known(batches), new=False)
        self.stale = False

    def _known(self, batches: Iterable[Any]) -> Iterator[tuple[Any, Tensor, Tensor]]:
        for batch in batches:
            x, y, ids = self._taken_apart(batch)
            if ids is not None:
                yield x, y, ids

    def finish(self, batches: Iterable[Any], held_out: Iterable[Any] = ()) -> None:
        """Learn a memory that is learned after the backbone; others are learned by now.

        Args:
            batches: The training rows, all of them in every process. Where they have ids, those
                that no step learned from, as a sampler may leave out, are not remembered.
            held_out: Rows to validate with, for :meth:`hma.HMA.learn_memory`.
        """
        if not self.model.config.mixes:
            return
        rows = self.model.encoded(self._parts(batch) for batch in batches)
        if rows is None:
            warnings.warn(
                "the training rows cannot be asked for again, so the memory is not learned yet; "
                "call model.learn_memory(batches) with them",
                stacklevel=3,
            )
            return
        if self._trained_on and rows.ids is not None:
            known = torch.cat(self._trained_on).to(rows.ids)
            rows = rows.at(torch.isin(rows.ids, known).nonzero()[:, 0])
        others = self.model.encoded(self._parts(batch)[:2] for batch in held_out)
        learn_memory(self.model, rows, others)

    def _parts(self, batch: Any) -> tuple[Any, ...]:
        return tuple(part for part in self._taken_apart(batch) if part is not None)


def _ids(batch: Held) -> Tensor:
    if batch.ids is None:
        return torch.full((len(batch.y),), UNKNOWN, device=batch.y.device)
    return batch.ids.to(batch.y.device)
