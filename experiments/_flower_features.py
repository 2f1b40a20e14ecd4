"""Flowers102 as features of a frozen network, for the figures of what a memory learns."""

from dataclasses import replace
from functools import partial

from hma.backbones import mlp
from hma.data import InMemory, Split, Task
from hma.paper.table import Problem
from hma.training import Recipe

from ._real_data import encoded, flowers, rows_of, vectors

SOURCE = partial(flowers, "flowers102")
RECIPE = Recipe(epochs=30, batch_size=128, eval_batch_size=128, lr=1e-3, weight_decay=1e-4)
"""How a layer on these features and a memory are trained: seconds an epoch on a core."""


def features(seed: int) -> Task:
    """Return features of EfficientNet-lite0 for all images, standardised by those of training."""
    whole = encoded(SOURCE)
    train = vectors(whole.train)
    mean, deviation = train.mean(dim=0), train.std(dim=0).clamp(min=1e-6)

    def standardised(split: Split) -> InMemory:
        return InMemory((vectors(split) - mean) / deviation, split.labels)

    return replace(
        whole,
        name="Flowers102 features",
        kind="table",
        shape=(train.shape[1],),
        train=standardised(whole.train),
        validation=standardised(whole.validation),
        tests={name: standardised(split) for name, split in whole.tests.items()},
        facts={"seed": seed},
    )


def problem() -> Problem:
    """Return the column: a trained layer of 256 on the features."""
    return Problem(
        task=features,
        backbone=lambda task: mlp(task.shape[0], hidden=(256,)),
        shown=lambda seed: rows_of(SOURCE),
    )
