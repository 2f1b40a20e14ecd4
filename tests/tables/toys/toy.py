"""A table that takes seconds, with everything that can go wrong in a real one."""

from pathlib import Path

import torch

from hma.backbones import mlp
from hma.data import InMemory, Task
from hma.data.location import missing_data
from hma.methods import erm
from hma.tables import Budget, Problem, Row, Table, memory_row
from hma.training import Recipe


def data(seed):
    generator = torch.Generator().manual_seed(seed)

    def split(rows):
        x = torch.randn(rows, 4, generator=generator)
        return InMemory(x, (x[:, 0] + 0.5 * x[:, 1] > 0).long())

    tests = {"near": split(40), "far": split(30)}
    return Task("toy", "table", ("no", "yes"), (4,), split(64), split(32), tests)


def nowhere(seed):
    raise missing_data("the toy", Path("/nowhere/toy"), "https://example.org/toy")


def broken(backbone):
    raise ValueError("this row\nnever works")


def small(task):
    return mlp(task.shape[0], hidden=(8,))


recipe = Recipe(
    epochs=3, batch_size=16, selection="last", checkpoint_every_seconds=0, eval_batch_size=16
)
TABLE = Table(
    key="TOY",
    title="Toy",
    problems={
        "easy": Problem(task=data, backbone=small),
        "other": Problem(task=lambda seed: data(seed + 100), backbone=small),
        "absent": Problem(task=nowhere, backbone=small),
    },
    rows={
        "ERM": Row(build=erm, search={"lr": (1e-3, 1e-1)}),
        "HMA": memory_row(
            "hma",
            label_dim=4,
            num_heads=2,
            queue_size=16,
            slots_per_class=2,
            recipe={"weight_decay": 1e-4},
            search={"queue_size": (8, 16), "lr": (1e-3, 1e-2)},
        ),
        "BROKEN": Row(build=broken),
    },
    budgets={
        "smoke": Budget(
            what="two tasks",
            recipe=recipe,
            seeds=2,
            tasks=("easy", "other"),
            methods=("ERM", "HMA"),
        ),
        "small": Budget(
            what="longer", recipe=recipe, seeds=1, per_task={"other": {"epochs": 5}}, rows=24
        ),
        "paper": Budget(what="all", recipe=recipe, seeds=3),
    },
    baseline="ERM",
    published={"HMA": {"easy": (90.0, 1.5)}},
    seeds=(0, 1, 2),
)
