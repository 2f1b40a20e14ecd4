"""A task without rows: enough to build a learner whose weights are then replaced."""

from dataclasses import dataclass
from typing import Any

import torch

from hma.data import InMemory, Preparation, Task


@dataclass(frozen=True)
class RowShape:
    """What a backbone needs to know of the data."""

    name: str
    kind: Any
    shape: tuple[int, ...]


def bare_task(preparation: Preparation) -> Task:
    """Return the task that a preparation was fitted for, without its rows."""
    none = InMemory(torch.empty(0), torch.empty(0, dtype=torch.long))
    return Task(
        name="rows to come",
        kind=preparation.kind,
        classes=preparation.classes,
        shape=preparation.shape,
        train=none,
        validation=none,
        tests={},
        target=preparation.target,
    )
