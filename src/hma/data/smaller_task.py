"""A smaller task of a large one, for trials."""

from dataclasses import replace

import torch
from torch import Tensor

from hma.data.task import Batch, Split, Task


class Part:
    """Some rows of a split, in their order; sample ids count within the part.

    Args:
        split: The whole.
        chosen: Places of the rows to keep, ``(N,)``.
    """

    def __init__(self, split: Split, chosen: Tensor) -> None:
        self.split = split
        self.chosen = chosen
        self.labels = split.labels[chosen]

    def __len__(self) -> int:
        return len(self.chosen)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the rows at ``places`` of the part, augmented if the whole is."""
        return self.split.batch(self.chosen[places], epoch)._replace(ids=places)


def limited(task: Task, rows: int | None, *, seed: int) -> Task:
    """Return ``task`` with at most ``rows`` rows in every split, chosen by seed.

    Args:
        task: The whole.
        rows: Most rows of a split; None changes nothing.
        seed: Decides which rows stay; they stay in their order.

    Example:
        >>> from hma.data.task import InMemory
        >>> split = InMemory(torch.arange(9.0)[:, None], labels=torch.arange(9) % 3)
        >>> task = Task("nine", "table", ("a", "b", "c"), (1,), split, split, {"test": split})
        >>> small = limited(task, 4, seed=0)
        >>> len(small.train), len(small.tests["test"]), small.facts["limited to"]
        (4, 4, 4)
    """
    if rows is None:
        return task
    generator = torch.Generator().manual_seed(seed)

    def part(split: Split) -> Split:
        if len(split) <= rows:
            return split
        chosen = torch.randperm(len(split), generator=generator)[:rows].sort().values
        return Part(split, chosen)

    return replace(
        task,
        train=part(task.train),
        validation=part(task.validation),
        tests={name: part(split) for name, split in task.tests.items()},
        facts={**task.facts, "limited to": rows},
    )
