"""Figure 5: how many rows of real memory, how many slots: m1 x m2, on graphs.

Run it, with its cost on two cores::

    hma run F5 --budget smoke --workers 2     # minutes: the first run encodes all sentences
    hma run F5 --budget small --workers 2     # TWITTER and SST5, 2 x 4 sizes, 3 seeds: 35 minutes
    hma run F5 --budget paper --workers 2     # three data sets, 4 x 5 sizes, 5 seeds: days

Published: curves without numbers, on REDD-M5, TWITTER and SST5. "While a suitable increase in the
synthetic memory size m2 can bring improvement, larger m2 will hurt"; "introducing m1 can make the
model more stable"; "with the addition of real memory augmentation, an increase in m2 provides more
improvement". Each is checked by a number with its interval over seeds.

Lines are sizes of the real memory (0: none) over slots of a class (0: attention between datapoints
without slots). Data, networks and recipes are those of tables 5 and 4; so are width of the label
embedding and heads.

Departures: the figure's sizes are not printed with numbers; ours hold the published choice of both
sentence tables (m1 192, m2 48 on TWITTER; 512, 16 on SST5), and one size of slots far beyond it.
The small budget has no other size of the real memory than none and the published one.
"""

from dataclasses import replace

from hma.paper.table import Budget, Claim, Row, SizeSweep, Table, memory_row

from ._graph_rows import BATCH, CIGA, by_task, plain_rows
from .t4_graphs import TABLE as T4
from .t4_graphs import recipe as social
from .t5_degree_shift import TABLE as T5
from .t5_degree_shift import WORDS

REAL, SLOTS = (0, 64, 192, 512), (0, 8, 16, 48, 192)
ABLATIONS = {
    (False, False): "abd",
    (True, False): "abd+rma",
    (False, True): "abd+syn",
    (True, True): "hma",
}
"""Whether there is a real memory, and slots -> the paper's name of it."""
PUBLISHED = {"TWITTER": 192, "SST5": 512}
"""Rows of the real memory in the paper's tables."""
LABEL = {"TWITTER": 32, "SST5": 32, "REDD-M5": 64}
NETWORKS = {"TWITTER": T5, "SST5": T5, "REDD-M5": T4}


def sized(ablation: str, **sizes: int) -> Row:
    """Return a row with memories of some sizes; what the ablation has none of is left out."""
    row = memory_row(ablation, label_dim=LABEL, num_heads=4, **sizes)
    assert row.build is not None
    return replace(row, build=by_task(row.build))


def name(real: int, slots: int) -> str:
    """Return the name of a row."""
    return f"m1-{real}-m2-{slots}"


sizes = {(real, slots): name(real, slots) for real in REAL for slots in SLOTS}
references = {"ERM": plain_rows(BATCH)["ERM"], "PARAM": sized("param")}

TABLE = Table(
    key="F5",
    title="Sizes of both memories",
    problems={task: table.problems[task] for task, table in NETWORKS.items()},
    rows={
        **references,
        **{
            row: sized(ABLATIONS[bool(real), bool(slots)], queue_size=real, slots_per_class=slots)
            for (real, slots), row in sizes.items()
        },
    },
    budgets={
        "smoke": Budget(
            what="TWITTER, 64 graphs of each split, one epoch, 2 x 3 sizes, one seed",
            recipe=replace(CIGA, epochs=1),
            seeds=1,
            rows=64,
            tasks=("TWITTER",),
            methods=("ERM", "PARAM", *(name(m1, m2) for m1 in (0, 64) for m2 in (0, 8, 16))),
        ),
        "small": Budget(
            what="TWITTER and SST5, stopped by validation as in table 5, 2 x 4 sizes, 3 seeds",
            recipe=CIGA,
            seeds=3,
            tasks=tuple(PUBLISHED),
            methods=(
                "ERM",
                "PARAM",
                *(
                    f"{task}/{name(m1, m2)}"
                    for task, real in PUBLISHED.items()
                    for m1 in (0, real)
                    for m2 in (0, 16, 48, 192)
                ),
            ),
        ),
        "paper": Budget(
            what="the protocols of tables 5 and 4, 5 seeds",
            recipe=CIGA,
            per_task={"REDD-M5": social.to_json()},
            seeds=5,
        ),
    },
    baseline="ERM",
    seeds=(1, 2, 3, 4, 5),
    notes=(WORDS,),
    pictures=(
        SizeSweep(title="Sizes of both memories", sizes=sizes, references=tuple(references)),
    ),
    claims=tuple(
        Claim(says=says, where="figure 5", kind="seen", seen=seen)
        for says, seen in (
            ("A suitable number of slots brings improvement", "Slots help"),
            ("Too many slots hurt", "Too many slots hurt"),
            ("Real memory makes results more stable", "Real memory makes it more stable"),
            ("Slots bring more with real memory", "Slots give more with real memory"),
        )
    ),
)
