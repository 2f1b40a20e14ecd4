"""A table that takes seconds, with everything that can go wrong in a real one."""

from hma.backbones import mlp
from hma.methods import erm
from hma.paper.table import Budget, Problem, Row, Table, memory_row
from hma.training import Recipe

from ._toy_data import data, nowhere


def broken(backbone):
    raise ValueError("this row\nnever works")


def small(task):
    return mlp(task.shape[0], hidden=(8,))


recipe = Recipe(
    epochs=2, batch_size=16, selection="last", checkpoint_every_seconds=0, eval_batch_size=16
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
