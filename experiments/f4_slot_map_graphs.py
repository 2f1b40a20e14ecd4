"""Figure 4: where the synthetic slots lie on graphs, alone and among real features.

Run it, with its cost on two cores::

    hma run F4 --budget smoke --workers 2     # a minute
    hma run F4 --budget small --workers 2     # IMDB-M, 100 epochs, 3 seeds
    hma run F4 --budget paper --workers 2     # REDD-M5 as well, 800 epochs, 3 seeds: hours
    hma report F4 -o f4.png                   # the picture; .pdf, and .html to ask it

Published: a picture without numbers, of REDD-M5; "slots of class 1 scatter over other classes'
clusters", and so do its features, from which the paper reads that slots "might capture class-level
information". Here it is measured whether slots of a class lie together, and whether they lie among
the real features of their class, beside permuted classes; see F3 for what t-SNE is given.

Departures: those of T4, whose problems, recipe and sizes these are; three seeds of its eight.
IMDB-M, three classes, stands in where REDD-M5 is absent.
"""

from dataclasses import replace
from functools import partial

from hma.backbones import gin
from hma.paper.picture_measures import slot_map
from hma.paper.table import Budget, Problem, SlotMap, Table

from ._claims import SLOTS_APART, SLOTS_CLUSTER
from ._graph_rows import memory_rows
from .t4_graphs import BATCH, data, recipe

SIZES = {"label_dim": 64, "queue_size": 256, "slots_per_class": 16, "num_heads": 4}
measure = partial(slot_map, classes=5)
plain = memory_rows(BATCH, **SIZES)
from_rows = memory_rows(BATCH, slot_init="samples", **SIZES)

TABLE = Table(
    key="F4",
    title="Where slots lie, on graphs",
    problems={
        name: Problem(task=partial(data, name), backbone=gin("g-mixup"))
        for name in ("IMDB-M", "REDD-M5")
    },
    rows={
        "PARAM": plain["PARAM"],
        "HMA": replace(plain["HMA"], measure=measure),
        "HMA-rows": replace(
            from_rows["HMA"], measure=measure, what="the same, slots start as training rows"
        ),
    },
    budgets={
        "smoke": Budget(
            what="IMDB-M, 96 graphs of each split, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            rows=96,
            tasks=("IMDB-M",),
        ),
        "small": Budget(
            what="IMDB-M, 100 epochs, 3 seeds",
            recipe=replace(recipe, epochs=100),
            seeds=3,
            tasks=("IMDB-M",),
        ),
        "paper": Budget(what="800 epochs, 3 seeds", recipe=recipe, seeds=3),
    },
    baseline="PARAM",
    pictures=(SlotMap(title="t-SNE of slots", rows=("HMA", "HMA-rows")),),
    seeds=tuple(1314 + 10_000 * k for k in range(3)),
    notes=("The paper prints a picture only, so there is nothing to subtract.",),
    claims=(SLOTS_CLUSTER, SLOTS_APART),
)
