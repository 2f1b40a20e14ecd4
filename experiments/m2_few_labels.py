"""M2: does a memory help with few labels? Frozen features, one to two hundred labels a class.

Run it::

    hma run M2 --budget smoke --workers 2     # a minute
    hma run M2 --budget small --workers 2     # digits and the sentences, three seeds
    hma run M2 --budget full --workers 2      # Flowers102 as well, five seeds

Published: nothing; the suite decides which design of the memory is the default.

Features are made once and kept in hma's cache folder: EfficientNet-lite0 of Flowers102 (tested on
the first 1,020 images of 6,149), MiniLM of the sentences of SST-5 and Twitter (words joined by
blanks), pixels of scikit-learn's digits. A seed draws the labelled rows: as many of a class for
validation as for training, so that no row chooses its settings by labels that nobody has. Rows and
rule are those of M1, on standardised features.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hma.backbones import Frozen
from hma.data import InMemory, Split, Task
from hma.data.sets.digits import digits
from hma.paper.table import Budget, Ladder, Problem, Table
from hma.training import UserRecipe

from ._memory_rows import NAMES_OF_ROWS, ROWS
from ._real_data import Fields, encoded, flowers, sentences, vectors

SOURCES: dict[str, Callable[[Path], Fields]] = {
    "Twitter": partial(sentences, "twitter"),
    "SST5": partial(sentences, "sst5"),
    "Flowers102": partial(flowers, "flowers102"),
}
LABELS = {
    "digits": (5, 10, 20),
    "Twitter": (10, 50, 200),
    "SST5": (10, 50, 200),
    "Flowers102": (1, 2, 5, 10),
}


class AsTheyAre(nn.Identity):
    """Features that were made before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.feature_dim = width


def encoder(task: Task) -> Frozen:
    """Return what stands for the frozen backbone: it standardises its features."""
    return Frozen(AsTheyAre(task.shape[0]), standardised=True)


def few(name: str, count: int, seed: int) -> Task:
    """Return a task of features with so many labels of each class, drawn by seed."""
    whole = digits(seed) if name == "digits" else encoded(SOURCES[name])
    draw = torch.Generator().manual_seed(seed)
    tests = {split: vectors(rows) for split, rows in whole.tests.items()}
    return replace(
        whole,
        name=f"{name}, {count} labels a class",
        kind="table",
        shape=(next(iter(tests.values())).shape[1],),
        train=_some(whole.train, count, draw),
        validation=_some(whole.validation, count, draw),
        tests={split: InMemory(x, whole.tests[split].labels) for split, x in tests.items()},
        facts={"labels a class": count, "seed": seed},
    )


def _some(split: Split, count: int, draw: torch.Generator) -> InMemory:
    order = torch.randperm(len(split), generator=draw)
    labels = split.labels[order]
    kept = [order[labels == label][:count] for label in labels.unique()]
    places = torch.cat(kept).sort().values
    return InMemory(vectors(split, places), split.labels[places])


recipe = UserRecipe().fixed()

TABLE = Table(
    key="M2",
    title="Does a memory help? Few labels on frozen features",
    problems={
        f"{name}-{count}": Problem(task=partial(few, name, count), backbone=encoder)
        for name, counts in LABELS.items()
        for count in counts
    },
    rows={name: row for name, row in ROWS.items() if name not in ("forest", "boosting")},
    budgets={
        "smoke": Budget(
            what="digits with five labels a class, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("digits-5",),
        ),
        "small": Budget(
            what="digits, Twitter and SST-5, three seeds",
            recipe=recipe,
            seeds=3,
            tasks=("digits-*", "Twitter-*", "SST5-*"),
        ),
        "full": Budget(
            what="digits, Twitter, SST-5, Flowers102, five seeds", recipe=recipe, seeds=5
        ),
    },
    baseline="ERM",
    ranked="VotingMemory",
    ladders=(Ladder(layer_norm=None),),
    recorded_names=NAMES_OF_ROWS,
    page="when-memory-helps",
    curves={name: tuple(f"{name}-{n}" for n in counts) for name, counts in LABELS.items()},
    notes=(
        "Flowers102 is tested on the first 1,020 of its 6,149 test images.",
        "PARAM and the paper's memory, whose blocks grow with the square of the features, are not "
        "measured here yet.",
    ),
)
