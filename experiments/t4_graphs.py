"""Table 4: social networks as graphs, in distribution, against augmentations of graphs.

Run it, with its cost on two cores::

    hma run T4 --budget smoke --workers 2     # a minute
    hma run T4 --budget small --workers 2     # IMDB-B and IMDB-M, 100 epochs, 3 seeds
    hma run T4 --budget paper --workers 2     # five data sets, 800 epochs, 8 seeds: days

Published, accuracy in percent on IMDB-B, IMDB-M, REDD-B, REDD-M5, REDD-M12: vanilla 71.55 48.83
92.59 55.19 50.23, G-Mixup 71.94 50.46 92.90 55.49 50.50, HMA 72.62 49.78 92.80 56.37 50.27. The
rows without memory are copied from G-Mixup's paper, which a replication could not fully confirm.

Departures: training, validation and test graphs (70, 10 and 20%) are drawn by class as well as by
seed. Which epoch counts is not said; ours is the one with the best validation accuracy. The paper
gives no sizes of the memories for this table; they are from its search ranges, not searched.
"""

from dataclasses import replace
from functools import partial

from hma.backbones import gin
from hma.data import Task, builtin
from hma.paper.table import Budget, Claim, Ladder, Problem, Table
from hma.training import Recipe

from ._claims import BACKBONES, BATCH_ALONE, MORE_THAN_PARAMETERS, REAL_ALONE, TOGETHER
from ._graph_rows import augmentation_rows, memory_rows, plain_rows

BATCH = 128


def data(name: str, seed: int) -> Task:
    """Return a TU data set; where nodes have no labels their features are their degrees."""
    return replace(builtin(f"tu:{name}", seed=seed).task, name=name)


recipe = Recipe(
    epochs=800,
    batch_size=BATCH,
    eval_batch_size=BATCH,
    lr=0.01,
    weight_decay=5e-4,
    schedule="step",
    decay_every=100,
    decay_factor=0.5,
)

TABLE = Table(
    key="T4",
    title="Graphs, in distribution",
    problems={
        name: Problem(task=partial(data, name), backbone=gin("g-mixup"))
        for name in ("IMDB-B", "IMDB-M", "REDD-B", "REDD-M5", "REDD-M12")
    },
    rows={
        **plain_rows(BATCH, "vanilla"),
        **augmentation_rows(BATCH),
        **memory_rows(BATCH, label_dim=64, queue_size=256, slots_per_class=16, num_heads=4),
    },
    budgets={
        "smoke": Budget(
            what="IMDB-B, 64 graphs of each split, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            rows=64,
            tasks=("IMDB-B",),
        ),
        "small": Budget(
            what="IMDB-B and IMDB-M, 100 epochs, 3 seeds",
            recipe=replace(recipe, epochs=100),
            seeds=3,
            tasks=("IMDB-*",),
        ),
        "paper": Budget(what="800 epochs, 8 seeds", recipe=recipe, seeds=8),
    },
    baseline="vanilla",
    notes=(
        "DropEdge counts the degrees that are node features after edges are left out; "
        "DropEdge-degrees keeps those of the whole graph. The published numbers are near the "
        "latter: on these data sets exact degrees tell much of the class.",
        "DropEdge, DropNode, Subgraph and Manifold-Mixup have no reference code: the repository "
        "that the paper names for this table, of G-Mixup, does not hold them. Here they follow "
        "their papers, so they cannot be held to what was run.",
    ),
    published={
        "vanilla": {
            "IMDB-B": (71.55, 3.53),
            "IMDB-M": (48.83, 2.75),
            "REDD-B": (92.59, 0.86),
            "REDD-M5": (55.19, 1.02),
            "REDD-M12": (50.23, 0.83),
        },
        "DropEdge": {
            "IMDB-B": (72.2, 1.82),
            "IMDB-M": (48.83, 3.02),
            "REDD-B": (92.0, 1.13),
            "REDD-M5": (55.1, 0.44),
            "REDD-M12": (49.77, 0.76),
        },
        "DropNode": {
            "IMDB-B": (72.16, 0.28),
            "IMDB-M": (48.33, 0.98),
            "REDD-B": (90.25, 0.98),
            "REDD-M5": (53.26, 4.99),
            "REDD-M12": (49.95, 1.7),
        },
        "Subgraph": {
            "IMDB-B": (68.5, 0.86),
            "IMDB-M": (47.25, 3.78),
            "REDD-B": (90.33, 0.87),
            "REDD-M5": (54.6, 3.15),
            "REDD-M12": (49.67, 0.9),
        },
        "Manifold-Mixup": {
            "IMDB-B": (70.83, 1.04),
            "IMDB-M": (49.88, 1.34),
            "REDD-B": (90.75, 1.78),
            "REDD-M5": (54.95, 0.86),
            "REDD-M12": (49.81, 0.8),
        },
        "G-Mixup": {
            "IMDB-B": (71.94, 3.0),
            "IMDB-M": (50.46, 1.49),
            "REDD-B": (92.9, 0.87),
            "REDD-M5": (55.49, 0.53),
            "REDD-M12": (50.5, 0.41),
        },
        "RMA": {
            "IMDB-B": (71.17, 4.75),
            "IMDB-M": (49.89, 2.5),
            "REDD-B": (91.92, 1.7),
            "REDD-M5": (55.23, 0.58),
            "REDD-M12": (49.32, 1.45),
        },
        "ABD": {
            "IMDB-B": (70.67, 3.25),
            "IMDB-M": (47.44, 1.84),
            "REDD-B": (92.42, 0.14),
            "REDD-M5": (54.87, 0.45),
            "REDD-M12": (49.08, 0.86),
        },
        "ABD+SYN": {
            "IMDB-B": (71.67, 3.25),
            "IMDB-M": (48.97, 2.97),
            "REDD-B": (91.08, 1.23),
            "REDD-M5": (55.9, 0.95),
            "REDD-M12": (49.29, 1.0),
        },
        "HMA": {
            "IMDB-B": (72.62, 0.48),
            "IMDB-M": (49.78, 0.74),
            "REDD-B": (92.8, 1.37),
            "REDD-M5": (56.37, 1.65),
            "REDD-M12": (50.27, 0.6),
        },
    },
    ladders=(Ladder(plain="vanilla"),),
    seeds=tuple(1314 + 10_000 * k for k in range(8)),
    claims=(
        BACKBONES.on(("HMA", "vanilla")),
        MORE_THAN_PARAMETERS.on(("HMA", "PARAM")),
        REAL_ALONE.on(("RMA", "vanilla")),
        BATCH_ALONE.on(("ABD", "vanilla"), ("ABD+SYN", "vanilla")),
        TOGETHER.on(("HMA", "RMA"), ("HMA", "ABD+SYN")),
        Claim(
            says="HMA is better than Manifold-Mixup",
            where="table 4",
            rows=(("HMA", "Manifold-Mixup"),),
        ),
        Claim(
            says="HMA is no worse than G-Mixup",
            where="table 4",
            kind="no less",
            rows=(("HMA", "G-Mixup"),),
        ),
    ),
    unmeasured={
        "REDD-B": "859,254 nodes: its cells have not been run on two cores",
        "REDD-M*": "no copy of the data could be found",
    },
)
