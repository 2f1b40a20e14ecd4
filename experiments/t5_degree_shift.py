"""Table 5: sentences as graphs, of another average degree than those of training.

Run it, with its cost on two cores::

    hma run T5 --budget smoke --workers 2     # minutes: the first run encodes all sentences
    hma run T5 --budget small --workers 2     # TWITTER, at most 10 epochs, 3 seeds
    hma run T5 --budget paper --workers 2     # both data sets, 5 seeds: a day

Published, accuracy in percent on SST5, TWITTER: ERM 43.72 63.54, CIGAv1 43.70 62.02, CIGAv2 43.30
61.80, HMA 44.03 65.12. Their means and deviations are over pairs of seed and epoch; ours are over
seeds.

Degree is edges / nodes. SST5 trains on graphs up to the median and tests above the 80th percentile;
TWITTER is reversed, above the median and up to the 20th; those between validate.

Departures: where DIG's archives are not at hand, words have vectors of a small pretrained encoder
(MiniLM, 384 wide) in place of BERT's, and another parser drew the arcs. The released commands build
CIGA in place of HMA on SST5 and never fill the queue on TWITTER; ours are what the paper describes,
but for HMA-released, which on TWITTER has an empty queue and a contrast of weight 8 as there.
Penalties of IRM, V-REx and IB-IRM count once, as is the default of CIGA's code: a search here takes
longer than the table. V-REx's variance has a gradient, which it has not in that code. ASAP and DIR
keep as much of a graph as CIGA does, and DIR has the weights of its authors' code.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from hma.backbones import gcn
from hma.data import Task, builtin
from hma.paper.rivals import random_environments
from hma.paper.table import Budget, Ladder, Problem, Table

from ._claims import BACKBONES, MEMORY_UNDER_SHIFT, MORE_THAN_PARAMETERS, SHIFT, STRONG_ERM
from ._graph_rows import (
    BATCH,
    CIGA,
    EARLIER_NAMES,
    memory_rows,
    oracle,
    penalty_rows,
    plain_rows,
    released_row,
    subgraph_rows,
)

SETS = {"SST5": ("graph-sst5", "degree"), "TWITTER": ("graph-twitter", "degree-reversed")}
"""Column -> name of the data, and how it is divided."""
WORDS = (
    "The paper's copies of these data sets have vectors of BERT for words and arcs of another "
    "parser. Here words have vectors of a small pretrained encoder (MiniLM), so what is published "
    "is of other graphs, and numbers that come close confirm nothing."
)
"""What a reader of any number on these sentences must know."""


def data(name: str, seed: int) -> Task:
    """Return sentences divided by degree; the training graphs are of two random halves."""
    source, shift = SETS[name]
    task = builtin(source, seed=seed, shift=shift).task
    return random_environments(replace(task, name=name), seed=seed)


plain = plain_rows(BATCH)
SIZES: dict[str, Any] = {
    "label_dim": 32,
    "queue_size": {"SST5": 512, "TWITTER": 192},
    "slots_per_class": {"SST5": 16, "TWITTER": 48},
    "num_heads": 4,
}
memory = memory_rows(BATCH, **SIZES)

TABLE = Table(
    key="T5",
    title="Sentence graphs of another degree, out of distribution",
    problems={
        name: Problem(
            task=partial(data, name), backbone=gcn("ciga", width=128, dropout=0.5, num_layers=3)
        )
        for name in SETS
    },
    rows={
        **plain,
        **penalty_rows(BATCH, {"IRM": 1.0, "V-REx": 1.0, "IB-IRM": 1.0}),
        **subgraph_rows(
            BATCH,
            share={"SST5": 0.5, "TWITTER": 0.6},
            reads={"SST5": "raw", "TWITTER": "hidden"},
            contrast={"CIGAv1": 8.0, "CIGAv2": {"SST5": 4.0, "TWITTER": 8.0}},
            spurious={"SST5": 1.0, "TWITTER": 0.5},
            contrasts="chosen",
            dropout=0.5,
        ),
        **memory,
        "HMA-released": released_row(
            BATCH,
            contrast={"SST5": 0.0, "TWITTER": 8.0},
            stores={"SST5": True, "TWITTER": False},
            **SIZES,
        ),
        "ERM-oracle": oracle(plain["ERM"]),
        "HMA-oracle": oracle(memory["HMA"]),
    },
    budgets={
        "smoke": Budget(
            what="TWITTER, 64 graphs of each split, one epoch, one seed",
            recipe=replace(CIGA, epochs=1),
            seeds=1,
            rows=64,
            tasks=("TWITTER",),
        ),
        "small": Budget(
            what="TWITTER, at most 10 epochs, 3 seeds",
            recipe=replace(CIGA, epochs=10),
            seeds=3,
            tasks=("TWITTER",),
        ),
        "paper": Budget(
            what="at most 400 epochs, stopped by validation, 5 seeds",
            recipe=CIGA,
            seeds=5,
            differs="words have vectors of MiniLM in place of BERT's, and arcs of another parser",
        ),
    },
    baseline="ERM",
    published={
        "ERM": {"SST5": (43.72, 0.59), "TWITTER": (63.54, 2.1)},
        "ASAP": {"SST5": (44.16, 1.36), "TWITTER": (60.68, 2.1)},
        "DIR": {"SST5": (41.12, 1.96), "TWITTER": (59.85, 2.98)},
        "IRM": {"SST5": (43.69, 1.26), "TWITTER": (63.5, 1.23)},
        "V-REx": {"SST5": (43.28, 0.52), "TWITTER": (63.21, 1.57)},
        "IB-IRM": {"SST5": (40.85, 2.08), "TWITTER": (61.26, 1.2)},
        "CIGAv1": {"SST5": (43.7, 1.98), "TWITTER": (62.02, 2.28)},
        "CIGAv2": {"SST5": (43.3, 0.9), "TWITTER": (61.8, 2.03)},
        "HMA": {"SST5": (44.03, 1.01), "TWITTER": (65.12, 2.17)},
    },
    ladders=(Ladder(),),
    recorded_names=EARLIER_NAMES,
    seeds=(1, 2, 3, 4, 5),
    notes=(WORDS,),
    claims=(
        BACKBONES.on(("HMA", "ERM")),
        MORE_THAN_PARAMETERS.on(("HMA", "PARAM")),
        SHIFT.on(("HMA", "ERM")),
        MEMORY_UNDER_SHIFT.on(("HMA", "PARAM")),
        STRONG_ERM.on(*((name, "ERM") for name in ("IRM", "V-REx", "IB-IRM", "DIR", "ASAP"))),
    ),
)
