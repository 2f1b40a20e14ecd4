"""Which rows come when, in training and in evaluation, and what each class counts."""

from collections.abc import Iterator

import torch
from torch import Tensor

from hma.errors import UserError
from hma.options.recipe import Balance

LEAST_ROWS = 2
"""BatchNorm cannot train on one row, so a batch keeps at least two for every device."""


BATCH, BATCH_SORTED = "batch", "batch-sorted"
"""Contexts in which a row sees its batch: rows shuffled, and rows as they are in the split."""


def evaluation_order(context: str, rows: int) -> Tensor:
    """Return the order in which ``context`` goes through a split of ``rows`` rows, ``(N,)``.

    It decides who shares a batch. 'batch' shuffles, by the number of rows alone, so that every
    model meets the same batches; any other context takes the rows as they are in the split.

    Example:
        >>> evaluation_order("batch", 6).tolist(), evaluation_order("batch-sorted", 6).tolist()
        ([2, 0, 5, 1, 4, 3], [0, 1, 2, 3, 4, 5])
    """
    if context == BATCH:
        return torch.randperm(rows, generator=torch.Generator().manual_seed(rows))
    return torch.arange(rows)


class TrainingOrder:
    """The batches of every epoch, by place in the training split.

    Args:
        labels: Class ids of all training rows ``(N,)``.
        batch_size: Rows per batch; a remainder of fewer than ``least`` rows joins the batch before.
        seed: With the epoch, decides the order; nothing else does.
        balance: 'sampler' draws as many rows as there are, each class as often as any other,
            with replacement; anything else shuffles.
        least: Fewest rows of a batch.
        drop_last: Leave a remainder out instead.

    Example:
        >>> order = TrainingOrder(torch.zeros(9), batch_size=4, seed=0)
        >>> order.steps_per_epoch, [len(places) for places in order.epoch(3)]
        (2, [4, 5])
    """

    def __init__(
        self,
        labels: Tensor,
        batch_size: int,
        seed: int,
        balance: Balance = "none",
        least: int = LEAST_ROWS,
        drop_last: bool = False,
    ) -> None:
        self.rows = len(labels)
        self.seed = seed
        if drop_last and self.rows < batch_size:
            raise UserError(
                f"drop_last leaves nothing to train on: batch_size must be at most the number of "
                f"training rows, {self.rows}, got {batch_size}"
            )
        whole = self.rows - self.rows % batch_size if drop_last else self.rows
        self.sizes = _batch_sizes(whole, batch_size, least)
        self.steps_per_epoch = len(self.sizes)
        self._by_class = _places_by_class(labels) if balance == "sampler" else None

    def epoch(self, epoch: int) -> tuple[Tensor, ...]:
        """Return the places of each batch of an epoch."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        if self._by_class is None:
            places = torch.randperm(self.rows, generator=generator)
        else:
            places = _drawn_evenly(self._by_class, self.rows, generator)
        return torch.split(places[: sum(self.sizes)], self.sizes)

    def steps(self, first: int, last: int) -> Iterator[tuple[int, Tensor]]:
        """Yield epoch and places of each step from ``first`` to before ``last``, counted from 0."""
        count = self.steps_per_epoch
        for epoch in range(first // count, -(-last // count)):
            start = epoch * count
            for places in self.epoch(epoch)[max(first - start, 0) : last - start]:
                yield epoch, places


def class_weights(labels: Tensor, num_classes: int) -> Tensor:
    """Return what a row of each class counts so that all classes count alike, ``(C,)``.

    ``N / (K * n_c)`` for a class with ``n_c`` of ``N`` rows, ``K`` classes having any: the mean
    weight of a row is 1. A class without rows gets 0.

    Example:
        >>> class_weights(torch.tensor([0, 0, 0, 1]), num_classes=2).tolist()
        [0.6666666865348816, 2.0]
    """
    counts = torch.bincount(labels.long().cpu(), minlength=num_classes).double()
    present = counts > 0
    weights = len(labels) / (present.sum() * counts.clamp(min=1))
    return torch.where(present, weights, 0.0).float()


def _batch_sizes(rows: int, batch_size: int, least: int) -> list[int]:
    sizes = [batch_size] * (rows // batch_size)
    remainder = rows % batch_size
    if remainder >= least or not sizes:
        sizes.append(remainder)
    else:
        sizes[-1] += remainder
    return sizes


def _places_by_class(labels: Tensor) -> list[Tensor]:
    labels = labels.cpu()
    return [(labels == label).nonzero()[:, 0] for label in torch.unique(labels)]


def _drawn_evenly(by_class: list[Tensor], count: int, generator: torch.Generator) -> Tensor:
    """Draw a class, each as likely, then a row of it, each as likely; ``count`` times."""
    sizes = torch.tensor([len(places) for places in by_class])
    starts = sizes.cumsum(0) - sizes
    chosen = torch.randint(len(by_class), (count,), generator=generator)
    within = torch.rand(count, generator=generator, dtype=torch.float64) * sizes[chosen]
    return torch.cat(by_class)[starts[chosen] + within.long()]
