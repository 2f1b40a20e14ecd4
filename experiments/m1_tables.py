"""M1: does a memory help on tables? Twelve real ones, ten seeds, every row by one rule.

Run it::

    hma run M1 --budget smoke --workers 2     # a minute
    hma run M1 --budget small --workers 2     # the eight tables of up to 1,000 rows, three seeds
    hma run M1 --budget full --workers 2      # all twelve, ten seeds

Published: nothing; the suite decides which design of the memory is the default.

One rule for all rows: what ``hma train`` does. Networks share the backbone that it gives to tables
and its recipe: at most 50 epochs, the epoch with the least validation loss, a temperature fitted on
the validation rows. Simple baselines choose their settings by the same validation rows. CatBoost,
XGBoost, LightGBM, RealMLP, TabM and xRFM (``pip install 'hma-torch[rivals]'``) have their authors'
defaults, and the same rows end their fits. No row sees the test rows before it is scored. Every row
is answered alone.

Of a large table at most 2,000 rows train, 1,000 validate and 4,000 test, drawn by seed: a memory is
for little data, and two cores can run every row of the suite.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hma.backbones.by_name import backbone_for, default_backbone
from hma.data import InMemory, Split, Task
from hma.paper.table import Budget, Ladder, Problem, Table
from hma.runs import RunOptions
from hma.runs.source import prepared_from
from hma.training import UserRecipe

from ._memory_rows import NAMES_OF_ROWS, OF_TABLES, ROWS
from ._real_data import LARGE_TABLES, SMALL_TABLES, table

MOST_ROWS, MOST_VALIDATING, MOST_TESTED = 2_000, 1_000, 4_000


def data(name: str, seed: int) -> Task:
    """Return a table as ``hma train`` divides and prepares it, of a large one some rows."""
    task = prepared_from(RunOptions(**table(name, Path()), seed=seed)).task
    if name not in LARGE_TABLES:
        return task
    draw = torch.Generator().manual_seed(seed)
    train = some(task.train, MOST_ROWS, draw)
    validation = some(task.validation, MOST_VALIDATING, draw)
    tests = {split: some(rows, MOST_TESTED, draw) for split, rows in task.tests.items()}
    return replace(task, train=train, validation=validation, tests=tests)


def some(split: Split, most: int, draw: torch.Generator) -> Split:
    """Return so many rows, drawn by chance, in their order."""
    if len(split) <= most:
        return split
    batch = split.batch(torch.randperm(len(split), generator=draw)[:most].sort().values)
    return InMemory(batch.x, batch.y)


def encoder(task: Task) -> nn.Module:
    """Return the backbone that ``hma train`` gives to tables, fresh."""
    return backbone_for(default_backbone(task.kind, task.shape))(task)


recipe = UserRecipe().fixed()

TABLE = Table(
    key="M1",
    title="Does a memory help? Tables",
    problems={
        name: Problem(task=partial(data, name), backbone=encoder)
        for name in (*SMALL_TABLES, *LARGE_TABLES)
    },
    rows={
        **{name: row for name, row in ROWS.items() if name not in ("prototypes", "cache")},
        **OF_TABLES,
    },
    budgets={
        "smoke": Budget(
            what="two tables, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("Zoo", "Glass"),
        ),
        "small": Budget(
            what="the eight tables of up to 1,000 rows, three seeds",
            recipe=recipe,
            seeds=3,
            tasks=SMALL_TABLES,
        ),
        "full": Budget(
            what="twelve tables, of each at most 2,000 training rows, ten seeds",
            recipe=recipe,
            seeds=10,
        ),
    },
    baseline="ERM",
    ranked="VotingMemory",
    ladders=(Ladder(layer_norm=None),),
    recorded_names=NAMES_OF_ROWS,
    page="when-memory-helps",
    notes=(
        "Musk and Vowel have groups (molecules, speakers) that a random split mixes.",
        "TabPFN is no row: version 1 takes at most 10 classes and 100 columns, and later versions "
        "fetch their weights when they run.",
        "Where permuted labels cost little, the head alone is as good: held-out rows then give the "
        "vote a small share, or a head that is sure outvotes it.",
    ),
)
