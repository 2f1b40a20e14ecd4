"""Table 6: graphs of another size than those of training.

Run it, with its cost on two cores::

    hma run T6 --budget smoke --workers 2     # a minute
    hma run T6 --budget small --workers 2     # PROTEINS, 3 seeds
    hma run T6 --budget paper --workers 2     # four data sets, 10 seeds

Published, Matthews correlation of 10 seeds on NCI1, NCI109, PROTEINS, DD: ERM 0.15 0.16 0.19 0.29,
CIGAv1 0.25 0.26 0.35 0.21, CIGAv2 0.28 0.27 0.30 0.19, HMA 0.19 0.18 0.34 0.32. Their means and
deviations are over pairs of seed and epoch; ours are over seeds.

Train on graphs below the median size, a tenth of them held out to validate; test above the 90th
percentile. Validation is in distribution, as in the paper, so rows named oracle, which select their
epoch on the test rows, show what that costs.

Departures: the paper's index files are not at hand, so who validates is drawn by seed. It gives
sizes of the memories for PROTEINS alone; all data sets have them. ASAP and DIR keep as much of a
graph as CIGA does, and DIR has the weights of its authors' code. Penalties of IRM, V-REx and
IB-IRM have the weight of 0.01, 0.1, 1, 10 and 100 that validated best with the first seed; NCI109
has those of NCI1, and ``hma search T6`` searches again. V-REx's variance has a gradient, which it
has not in CIGA's code. Rows that see their batch are scored in its shuffled order too, as TU files
are sorted by class.
"""

from dataclasses import replace
from functools import partial

from torch import nn

from hma.backbones.gnn import gcn, gin
from hma.data import Task, prepare
from hma.data.sets.tu import tu_source
from hma.paper.rivals import random_environments
from hma.paper.table import Budget, Ladder, Problem, Table

from ._claims import (
    BACKBONES,
    BATCH_ALONE,
    MEMORY_UNDER_SHIFT,
    MORE_THAN_PARAMETERS,
    REAL_ALONE,
    SHIFT,
    STRONG_ERM,
    TOGETHER,
)
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

WEIGHTS = {
    "IRM": {"NCI1": 1.0, "NCI109": 1.0, "PROTEINS": 10.0, "DD": 0.01},
    "V-REx": {"NCI1": 10.0, "NCI109": 10.0, "PROTEINS": 10.0, "DD": 0.1},
    "IB-IRM": {"NCI1": 1.0, "NCI109": 1.0, "PROTEINS": 0.01, "DD": 0.1},
}
"""Of the penalties."""


def data(name: str, seed: int) -> Task:
    """Return a TU data set divided by size; its training graphs are of two random halves."""
    task = prepare(tu_source(name), seed=seed, shift="size").task
    return random_environments(replace(task, name=name, metric="matthews"), seed=seed)


def encoder(task: Task) -> nn.Module:
    """Return CIGA's network for a data set."""
    return gin("ciga", pool="max")(task) if task.name == "PROTEINS" else gcn("ciga")(task)


SIZES = {"label_dim": 16, "queue_size": 128, "slots_per_class": 32, "num_heads": 4}
memory = memory_rows(BATCH, **SIZES)
plain = plain_rows(BATCH)

TABLE = Table(
    key="T6",
    title="Graphs of another size, out of distribution",
    problems={
        name: Problem(task=partial(data, name), backbone=encoder)
        for name in ("NCI1", "NCI109", "PROTEINS", "DD")
    },
    rows={
        **plain,
        **penalty_rows(BATCH, WEIGHTS),
        **subgraph_rows(
            BATCH,
            share={"NCI1": 0.6, "NCI109": 0.7, "PROTEINS": 0.3, "DD": 0.3},
            reads={"NCI1": "hidden", "NCI109": "hidden", "PROTEINS": "raw", "DD": "raw"},
            contrast={
                "CIGAv1": {"NCI1": 0.5, "NCI109": 2.0, "PROTEINS": 0.5, "DD": 2.0},
                "CIGAv2": {"NCI1": 1.0, "NCI109": 2.0, "PROTEINS": 0.5, "DD": 2.0},
            },
            spurious=1.0,
            contrasts={
                "NCI1": "chosen",
                "NCI109": "chosen",
                "PROTEINS": "predicted",
                "DD": "predicted",
            },
            dropout=0.3,
        ),
        **memory,
        "HMA-released": released_row(BATCH, contrast=0.0, stores=True, **SIZES),
        "ERM-oracle": oracle(plain["ERM"]),
        "HMA-oracle": oracle(memory["HMA"]),
    },
    budgets={
        "smoke": Budget(
            what="PROTEINS, 64 graphs of each split, one epoch, one seed",
            recipe=replace(CIGA, epochs=1),
            seeds=1,
            rows=64,
            tasks=("PROTEINS",),
        ),
        "small": Budget(what="PROTEINS alone, 3 seeds", recipe=CIGA, seeds=3, tasks=("PROTEINS",)),
        "paper": Budget(
            what="at most 400 epochs, stopped by validation, 10 seeds", recipe=CIGA, seeds=10
        ),
    },
    baseline="ERM",
    recorded_names={"VotingMemory": "HMA-vote", **EARLIER_NAMES},
    published={
        "ERM": {
            "NCI1": (0.15, 0.03),
            "NCI109": (0.16, 0.07),
            "PROTEINS": (0.19, 0.07),
            "DD": (0.29, 0.1),
        },
        "ASAP": {
            "NCI1": (0.16, 0.1),
            "NCI109": (0.15, 0.07),
            "PROTEINS": (0.22, 0.16),
            "DD": (0.21, 0.08),
        },
        "DIR": {
            "NCI1": (0.21, 0.06),
            "NCI109": (0.13, 0.05),
            "PROTEINS": (0.25, 0.14),
            "DD": (0.2, 0.1),
        },
        "IRM": {
            "NCI1": (0.17, 0.02),
            "NCI109": (0.14, 0.01),
            "PROTEINS": (0.21, 0.09),
            "DD": (0.22, 0.08),
        },
        "V-REx": {
            "NCI1": (0.15, 0.04),
            "NCI109": (0.15, 0.04),
            "PROTEINS": (0.22, 0.06),
            "DD": (0.21, 0.07),
        },
        "IB-IRM": {
            "NCI1": (0.12, 0.04),
            "NCI109": (0.15, 0.06),
            "PROTEINS": (0.21, 0.06),
            "DD": (0.15, 0.13),
        },
        "CIGAv1": {
            "NCI1": (0.25, 0.08),
            "NCI109": (0.26, 0.09),
            "PROTEINS": (0.35, 0.17),
            "DD": (0.21, 0.12),
        },
        "CIGAv2": {
            "NCI1": (0.28, 0.1),
            "NCI109": (0.27, 0.1),
            "PROTEINS": (0.3, 0.09),
            "DD": (0.19, 0.12),
        },
        "HMA": {
            "NCI1": (0.19, 0.05),
            "NCI109": (0.18, 0.04),
            "PROTEINS": (0.34, 0.07),
            "DD": (0.32, 0.03),
        },
    },
    metric="matthews",
    beside=("auroc",),
    ladders=(Ladder(),),
    seeds=tuple(range(1, 11)),
    notes=(
        "Published means and deviations are over pairs of seed and epoch, ours over seeds; sizes "
        "of the memories are those the paper gives for PROTEINS.",
        "PROTEINS has 112 test graphs, 11 of them of the second class: look at the intervals that "
        "draw test rows too, on the page of what memory is, and at ROC-AUC.",
        "CIGA's own code, run beside ours, does not reach what is published on NCI1 either: five "
        "seeds, CIGAv1 0.160 and CIGAv2 0.178 (published 0.25 and "
        "0.28); 0.34 and 0.33 only where the epoch is selected on test. PROTEINS, ten seeds, "
        "CIGAv2 0.375 (published 0.30).",
        "CIGAv2 on PROTEINS in single runs of 20 seeds that have no records: 0.183 where the loss "
        "of the rest teaches the encoders (CIGAv2-earlier), 0.255 where it does not and the head "
        "has a hidden layer (CIGAv2), 0.296 where the rest moves BatchNorm's statistics too "
        "(CIGAv2-released).",
        "ASAP and CIGA have rows named earlier, measured before they had what their authors' code "
        "has; the published numbers are compared with these until the new ones are measured.",
    ),
    claims=(
        BACKBONES.on(("HMA", "ERM")),
        MORE_THAN_PARAMETERS.on(("HMA", "PARAM")),
        REAL_ALONE.on(("RMA", "ERM")),
        BATCH_ALONE.on(("ABD", "ERM"), ("ABD+SYN", "ERM")),
        TOGETHER.on(("HMA", "RMA"), ("HMA", "ABD+SYN")),
        SHIFT.on(("HMA", "ERM")),
        MEMORY_UNDER_SHIFT.on(("HMA", "PARAM")),
        STRONG_ERM.on(*((name, "ERM") for name in ("IRM", "V-REx", "IB-IRM", "DIR", "ASAP"))),
    ),
)
