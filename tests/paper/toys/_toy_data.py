"""Data of the toy table, in a file beside it."""

from pathlib import Path

import torch

from hma.data import InMemory, Task
from hma.data.storage import missing_data


def data(seed):
    generator = torch.Generator().manual_seed(seed)

    def split(rows):
        x = torch.randn(rows, 4, generator=generator)
        return InMemory(x, (x[:, 0] + 0.5 * x[:, 1] > 0).long())

    tests = {"near": split(40), "far": split(30)}
    return Task("toy", "table", ("no", "yes"), (4,), split(64), split(32), tests)


def nowhere(seed):
    raise missing_data("the toy", Path("/nowhere/toy"), "https://example.org/toy")
