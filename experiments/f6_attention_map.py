"""Figure 6: who looks at whom in the synthetic read, ten samples of each of ten classes.

Run it, with its cost on two cores::

    hma run F6 --budget smoke --workers 2     # a minute
    hma run F6 --budget small --workers 2     # Flowers102 features, 3 seeds: ten minutes
    hma run F6 --budget paper --workers 2     # DTD and PETS37 with a ViT as well: a GPU
    hma report F6 -o f6.png                   # the picture; .pdf, and .html to ask it

Published: pictures without numbers, of DTD and PETS37; "a clear distinction between the attention
patterns among real data and the patterns between real data and synthetic memory", and "data from
the same class exhibit more similar attention scores towards the synthetic memory". Here: the mean
attention on a slot beside that on a sample, and how alike samples of a class look at slots, beside
permuted classes; besides, whether samples look at samples and slots of their own class.

Departures: attention is the mean over heads, the paper's notebook draws the first. The sizes are
those of the checkpoint that the paper draws (DTD), which keeps the 16 largest weights of a look;
the second row keeps all. Flowers102 stands in where the paper's data and weights are absent:
features of a frozen EfficientNet-lite0 and a trained layer of 256. Samples are of the test images.
"""

from dataclasses import replace
from functools import partial

from hma.paper.picture_measures import attention_map
from hma.paper.table import AttentionMap, Budget, Claim, Table, memory_row

from ._flower_features import RECIPE, problem
from ._vit_tuning import RECIPE as VIT
from ._vit_tuning import SIZES, STEPS, set_problems

PICTURED = ("DTD", "PETS37")
measure = partial(attention_map, classes=10, samples=10)
whole = {name: value for name, value in SIZES.items() if name != "top_k"}

TABLE = Table(
    key="F6",
    title="Who looks at whom",
    problems={"Flowers102": problem(), **set_problems(*PICTURED)},
    rows={
        "PARAM": memory_row("param", **SIZES),
        "HMA": memory_row("hma", measure=measure, **SIZES),
        "HMA-whole": replace(
            memory_row("hma", measure=measure, **whole), what="the same, all weights of a look kept"
        ),
    },
    budgets={
        "smoke": Budget(
            what="Flowers102, one epoch, one seed",
            recipe=replace(RECIPE, epochs=1),
            seeds=1,
            tasks=("Flowers102",),
        ),
        "small": Budget(
            what="Flowers102, 30 epochs, 3 seeds", recipe=RECIPE, seeds=3, tasks=("Flowers102",)
        ),
        "paper": Budget(
            what="Flowers102, 30 epochs, DTD and PETS37 the paper's steps, 3 seeds",
            recipe=RECIPE,
            per_task={
                name: replace(VIT, steps=STEPS[name], lr=3e-3).to_json() for name in PICTURED
            },
            seeds=3,
        ),
    },
    baseline="PARAM",
    pictures=(AttentionMap(title="Attention of the synthetic read", rows=("HMA", "HMA-whole")),),
    seeds=(0, 1, 2),
    notes=("The paper prints pictures only, so there is nothing to subtract.",),
    claims=(
        Claim(
            says="Samples look at slots otherwise than at samples",
            where="figure 6",
            kind="seen",
            seen="to slots",
        ),
        Claim(
            says="Samples of a class look at slots alike",
            where="figure 6",
            kind="seen",
            seen="alike",
        ),
    ),
)
