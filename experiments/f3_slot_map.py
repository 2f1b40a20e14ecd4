"""Figure 3: where the synthetic slots lie, alone and among real features.

Run it, with its cost on two cores::

    hma run F3 --budget smoke --workers 2     # a minute
    hma run F3 --budget small --workers 2     # Flowers102 features, 3 seeds: ten minutes
    hma run F3 --budget paper --workers 2     # CIFAR-10 with ResNet-18 as well: a GPU
    hma report F3 -o f3.png                   # the picture; .pdf, and .html to ask it

Published: a picture without numbers, of CIFAR-10; "slots belonging to the same class cluster
together", and with real features of three classes "three separate clusters ... merge into one",
from which the paper reads that "the learned memory ... differs from the real data features". Here
both are numbers beside permuted classes. As in the paper, t-SNE sees the free features of slots and
the rows of ``C^2``, what enters the synthetic read, both without label embeddings.

Departures: the paper says neither which three classes nor how many slots; here the three classes
with most rows and the sizes of T7. Flowers102 stands in where CIFAR-10 is absent: features of a
frozen EfficientNet-lite0 and a trained layer of 256. The second row of slots starts as training
rows, so that one sees what training does to slots.
"""

from dataclasses import replace
from functools import partial

from hma.backbones import resnet18
from hma.paper.picture_measures import slot_map
from hma.paper.table import Budget, Problem, SlotMap, Table, memory_row
from hma.training import Recipe

from ._claims import SLOTS_APART, SLOTS_CLUSTER
from ._flower_features import RECIPE, problem
from .t7_cifar10 import data
from .t7_cifar10 import recipe as cifar

SIZES = {"label_dim": 64, "queue_size": 256, "slots_per_class": 8}
measure = partial(slot_map, classes=3)
recipe: Recipe = RECIPE

TABLE = Table(
    key="F3",
    title="Where slots lie",
    problems={
        "Flowers102": problem(),
        "CIFAR10": Problem(task=data, backbone=lambda task: resnet18(in_channels=3)),
    },
    rows={
        "PARAM": memory_row("param", **SIZES),
        "HMA": memory_row("hma", measure=measure, **SIZES),
        "HMA-rows": replace(
            memory_row("hma", measure=measure, slot_init="samples", **SIZES),
            what="the same, slots start as training rows",
        ),
    },
    budgets={
        "smoke": Budget(
            what="Flowers102, one epoch, one seed",
            recipe=replace(recipe, epochs=1),
            seeds=1,
            tasks=("Flowers102",),
        ),
        "small": Budget(
            what="Flowers102, 30 epochs, 3 seeds", recipe=recipe, seeds=3, tasks=("Flowers102",)
        ),
        "paper": Budget(
            what="CIFAR-10, 200 epochs, and Flowers102, 30 epochs, 3 seeds",
            recipe=recipe,
            per_task={"CIFAR10": cifar.to_json()},
            seeds=3,
        ),
    },
    baseline="PARAM",
    pictures=(SlotMap(title="t-SNE of slots", rows=("HMA", "HMA-rows")),),
    seeds=(0, 1, 2),
    notes=("The paper prints a picture only, so there is nothing to subtract.",),
    claims=(SLOTS_CLUSTER, SLOTS_APART),
)
