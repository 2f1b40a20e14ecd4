"""What memory costs: weights, peak memory and seconds, beside the plain backbone and the rivals.

Run it on a quiet machine, one cell at a time, with its cost on two cores::

    hma run cost --budget smoke     # a minute, the small shapes, batches of 16
    hma run cost --budget small     # the shapes with graphs and the MLP: minutes
    hma run cost --budget full      # with ViT-B/32 and ResNet-18: ten minutes

Published, in passing: tuning CLS token and head of ViT-B/32 on DTD for 1,000 steps took 360 s and
4539 MiB without memory, "the same time" and 5159 MiB with it, of 87.5 M and 119 M weights; a run on
Twitter took ERM 10 minutes, HMA 20 and CIGA 50, on SST5 15, 60 and 140. On one GPU.

A cell is a shape of the paper. All its rows are built in one process and make their steps in turn,
so ratios come from steps that ran after one another. The step is the one that the tables train
with: cutting the batch, loss, backward, clipping, the optimizer, writing the memory. Rows, sizes
and recipes are those of the shape's own table.

Departures: images of ViT-B/32 and ResNet-18 are random, of the true size, and the ViT's weights are
random too, which changes no cost. All rows have at most 5,000 training rows, 256 of random images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from hma.backbones import mlp
from hma.backbones.vit import vit
from hma.data import InMemory, Task
from hma.data.task import limited
from hma.methods import Method, with_memory
from hma.methods.learner import BackboneFactory
from hma.paper.step_costs import Side, cost_record
from hma.paper.table import Budget, Cell, Job, Problem, PublishedCost, Row, Table
from hma.training import Recipe, Record
from hma.vote.config import VoteConfig

from ._vit_tuning import MODEL
from .f2_colored_mnist import TABLE as F2
from .t3_molecules import TABLE as T3
from .t4_graphs import TABLE as T4
from .t5_degree_shift import TABLE as T5
from .t7_cifar10 import TABLE as T7
from .t8_vit_part import TABLE as T8

MOST_ROWS, MOST_IMAGES = 5000, 256
"""Training rows of a shape; a memory that keeps all rows keeps so many."""
PLAIN, PARAM, PAPER, DEFAULT = "plain", "PARAM", "HMA", "VotingMemory"
WORDS = {PAPER: "the paper's memories, real and synthetic", "GIN-v": "with a virtual node"}
"""What rows are, where their tables do not say it."""


def default_memory(backbone: BackboneFactory, **keywords: Any) -> Method:
    """Return rows that vote for their labels, on a backbone."""
    return with_memory(partial(backbone, **keywords), VoteConfig(solved="none"))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where the rows of a comparison come from.

    Args:
        table: The table that trains them.
        task: Its column.
        rows: Name here -> its row there.
        problem: Data and backbone, where they are not the column's.
        default: Keywords of the backbone for the default memory, where the table has no such row.
        threads: Of torch: two where products are large.
    """

    table: Table
    task: str
    rows: Mapping[str, str]
    problem: Problem | None = None
    default: Mapping[str, Any] | None = None
    threads: int = 1

    def sides(self, seed: int, batch: int) -> dict[str, Side]:
        """Return the rows, each as its table trains it, with batches of at most ``batch``."""
        problem = self.problem or self.table.problems[self.task]
        held = {name: self.table.rows[row] for name, row in self.rows.items()}
        if self.default is not None:
            what = "the library's default memory: nearest stored rows answer beside the head"
            own = Row(build=default_memory, settings=self.default, what=what)
            names = list(held)
            held = {n: own if n == DEFAULT else held[n] for n in [*names[:3], DEFAULT, *names[3:]]}
        found = {}
        for name, row in held.items():
            assert row.build is not None
            method = row.build(problem.backbone, **row.settings)
            cell = Cell(self.table.key, "paper", self.task, self.rows.get(name, self.plain), seed)
            recipe = self.table.recipe(cell)
            sizes = {n: min(batch, getattr(recipe, n)) for n in ("batch_size", "eval_batch_size")}
            found[name] = Side(method, replace(recipe, **sizes), WORDS.get(name, row.what))
        return found

    @property
    def plain(self) -> str:
        """The plain backbone's row there."""
        return self.rows[PLAIN]

    def data(self, seed: int) -> Task:
        """Return the rows that all sides train on."""
        problem = self.problem or self.table.problems[self.task]
        return limited(problem.task(seed), MOST_ROWS, seed=seed)


def random_images(seed: int, *, name: str, size: int, classes: int) -> Task:
    """Return random images of a size, for what only the size decides."""
    generator = torch.Generator().manual_seed(seed)
    splits = [
        InMemory(
            torch.randn(count, 3, size, size, generator=generator),
            torch.randint(classes, (count,), generator=generator),
        )
        for count in (MOST_IMAGES, 32, 128)
    ]
    names = tuple(str(place) for place in range(classes))
    train, validation, test = splits
    facts = {"images": "random numbers"}
    return Task(name, "image", names, (3, size, size), train, validation, {"test": test}, "", facts)


def untrained_vit(task: Task, *, tuning: Any, prompts: Any) -> nn.Module:
    """Return the paper's ViT with random weights."""
    return vit(MODEL, task.shape, tuning=tuning, prompts=prompts)


def same(*names: str) -> dict[str, str]:
    """Return rows that have here the name they have there."""
    return {name: name for name in names}


SHAPES = {
    "ViT-DTD-part": Shape(
        table=T8,
        task="DTD",
        rows={PLAIN: "vit", PARAM: "param", PAPER: "hma"} | same("prompt-p", "prompt-a"),
        problem=Problem(
            task=partial(random_images, name="DTD", size=224, classes=47), backbone=untrained_vit
        ),
        default={"tuning": "part", "prompts": None},
        threads=2,
    ),
    "ResNet-CIFAR10": Shape(
        table=T7,
        task="CIFAR10",
        rows={PLAIN: "ERM", PARAM: "PARAM", PAPER: "HMA", "NPT": "NPT"},
        problem=Problem(
            task=partial(random_images, name="CIFAR10", size=32, classes=10),
            backbone=T7.problems["CIFAR10"].backbone,
        ),
        default={},
        threads=2,
    ),
    "GIN-IMDB-B": Shape(
        table=T4,
        task="IMDB-B",
        rows={PLAIN: "vanilla", PARAM: "PARAM", PAPER: "HMA", DEFAULT: "VotingMemory"}
        | same("DropEdge", "DropNode", "Subgraph", "Manifold-Mixup", "G-Mixup"),
    ),
    **{
        f"GCN-{task}": Shape(
            table=T5,
            task=task,
            rows={PLAIN: "ERM", PARAM: "PARAM", PAPER: "HMA", DEFAULT: "VotingMemory"}
            | same("IRM", "V-REx", "IB-IRM", "ASAP", "DIR", "CIGAv1", "CIGAv2"),
        )
        for task in ("TWITTER", "SST5")
    },
    "GIN-bace": Shape(
        table=T3,
        task="bace",
        rows={PLAIN: "GIN", PARAM: "GIN+PARAM", PAPER: "GIN+HMA", DEFAULT: "GIN+VotingMemory"}
        | same("GIN-v"),
    ),
    "MLP-CMNIST": Shape(
        table=F2,
        task="mlp-14-0.2-0.1",
        rows={PLAIN: "ERM", PARAM: "PARAM", PAPER: "HMA"}
        | same("IRM", "V-REx", "IB-IRM", "kNN", "BatchFormer", "NPT"),
        default={},
    ),
}


def compare(job: Job) -> Record:
    """Measure the rows of a shape in turn."""
    shape = SHAPES[job.cell.task]
    sides = shape.sides(job.cell.seed, job.recipe.batch_size)
    return cost_record(job, sides, shape.data(job.cell.seed), threads=shape.threads)


recipe = Recipe(steps=30, batch_size=256)
"""Timed rounds, and the most rows of a batch."""
SLOW = {"ViT-DTD-part": {"steps": 2}, "ResNet-CIFAR10": {"steps": 5}}

TABLE = Table(
    key="cost",
    title="What memory costs",
    problems={
        name: Problem(task=shape.data, backbone=lambda task: mlp(task.shape[0]))
        for name, shape in SHAPES.items()
    },
    rows={
        "in-turn": Row(work=compare, what="all rows of a shape, measured in turn"),
    },
    budgets={
        "smoke": Budget(
            what="three shapes, batches of 16, two rounds",
            recipe=replace(recipe, steps=2, batch_size=16),
            seeds=1,
            tasks=("GIN-*", "MLP-*"),
        ),
        "small": Budget(
            what="the shapes with graphs and the MLP, 30 rounds",
            recipe=recipe,
            seeds=1,
            tasks=("G*", "MLP-*"),
        ),
        "full": Budget(
            what="all shapes; 30 rounds, of ResNet-18 5 and of ViT-B/32 2",
            recipe=recipe,
            per_task=SLOW,
            seeds=1,
        ),
    },
    baseline="in-turn",
    recorded_names={PAPER: "HMA-paper", DEFAULT: "HMA-default"},
    published_costs={
        "ViT-DTD-part": {
            PLAIN: PublishedCost(parameters=87.5e6, trainable=36.9e3, mebibytes=4539, seconds=0.36),
            PAPER: PublishedCost(
                parameters=119e6,
                trainable=32.4e6,
                mebibytes=5159,
                seconds=0.36,
                note="16.8 M of the trainable are a head for ImageNet-21k that is not used",
            ),
        },
        "GCN-TWITTER": {
            PLAIN: PublishedCost(times_plain=1.0),
            PAPER: PublishedCost(times_plain=2.0),
            "CIGAv1": PublishedCost(times_plain=5.0, note="CIGA, of whole runs"),
        },
        "GCN-SST5": {
            PLAIN: PublishedCost(times_plain=1.0),
            PAPER: PublishedCost(times_plain=4.0),
            "CIGAv1": PublishedCost(times_plain=140 / 15, note="CIGA, of whole runs"),
        },
    },
    seeds=(0,),
    notes=(
        "Steps and answers of all rows of a shape ran in turn in one process, so ratios of one "
        "shape are comparable, and times of different shapes are not.",
        "Peak memory is of torch's tensors, to the byte: what a row holds between steps (weights, "
        "buffers, the optimizer's own) and the most that a step takes besides; scratch space of "
        "the matrix library is not in it, nor is the data set.",
        "Images of ViT-B/32 and ResNet-18 and the weights of the ViT are random: no cost depends "
        "on them.",
        "ASAP, CIGAv1 and CIGAv2 were timed as their rows named earlier in T5 are: with unweighted "
        "edges between clusters, a linear head, and a rest that teaches the encoders.",
    ),
)
