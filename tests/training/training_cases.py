"""Small tasks and learners that the tests of training share."""

import os
import signal

import torch
from torch import Tensor, nn

from hma.attention.config import HMAConfig
from hma.data import Batch, InMemory, Task
from hma.methods import Learner, Output, OutputModule, erm, with_memory
from hma.targets import Classes
from hma.training import Recipe, SilentProgress, fit
from hma.vote.config import VoteConfig


def rows(count: int, seed: int, classes: int = 3, width: int = 6) -> InMemory:
    """Clouds of points around one centre per class, hard enough to take some epochs."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(count, width, generator=generator)
    return InMemory(centres[labels] + 1.5 * noise, labels)


def small_task(train_rows: int = 90, **changes) -> Task:
    parts = {
        "name": "clouds",
        "kind": "table",
        "classes": ("a", "b", "c"),
        "shape": (6,),
        "train": rows(train_rows, seed=1),
        "validation": rows(60, seed=2),
        "tests": {"near": rows(50, seed=3), "far": rows(50, seed=4)},
    }
    return Task(**parts | changes)


class Noisy(nn.Module):
    """A backbone with everything that makes resuming hard: dropout and running statistics."""

    feature_dim = 16

    def __init__(self, width: int = 6, dropout: float = 0.3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(16, 16),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Plain(nn.Module):
    """A backbone without noise and without statistics of the batch."""

    feature_dim = 16

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 16), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


MEMORY = HMAConfig(
    label_dim=8, queue_size=40, slots_per_class=2, num_heads=2, dropout=0.1, momentum=0.9
)


def memory_learner(
    task: Task, seed: int = 0, config: HMAConfig | VoteConfig = MEMORY, backbone=Noisy
):
    return with_memory(lambda task: backbone(task.shape[0]), config)(task, seed)


def plain_learner(task: Task, seed: int = 0, backbone=Plain):
    return erm(lambda task: backbone(task.shape[0]))(task, seed)


def quietly(learner, task, recipe, **options):
    options = {"seed": 0, "progress": SilentProgress()} | options
    return fit(learner, task, recipe, **options)


def interrupted_at(learner: Learner, call: int) -> Learner:
    """Return the learner, which presses Ctrl-C at its so many-th step."""
    calls, inner = iter(range(10**9)), learner.loss

    def loss(batch):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return inner(batch)

    learner.loss = loss
    return learner


EVERYTHING = Recipe(
    epochs=60, batch_size=16, lr=3e-3, optimizer="adamw", weight_decay=0.01, schedule="cosine",
    warmup_steps=5, clip_norm=1.0, balance="loss", patience=12, patience_from=3,
    eval_batch_size=32, checkpoint_every_seconds=0.03,
)  # fmt: skip
"""A run of a few hundred steps with all that has a state of its own."""


class OneWeight(OutputModule):
    """A weight that starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1))

    def output(self, x: Tensor, features: Tensor | None = None) -> Output:
        return Output(x.float() @ self.weight, x)


class Scripted(Learner):
    """A learner that scores in validation what the script says, epoch by epoch.

    The only row of each split is of class 0 or 1; ``correct`` out of ten rows are predicted
    right. Its weight counts the steps, so kept weights tell which epoch they are from.
    """

    def __init__(self, correct: list[int]) -> None:
        super().__init__(OneWeight(), Classes(2))
        self.correct = correct
        self.trained = 0
        self.weights: list[Tensor | None] = []

    def loss_of(self, output: Output, batch: Batch) -> Tensor:
        self.trained += 1
        self.weights.append(batch.weight)
        return -self.module.weight.sum()  # sgd with lr=1 adds 1 at every step

    def forward(self, batch: Batch) -> Output:
        if self.module.training:
            return super().forward(batch)
        epoch = round(self.module.weight.item()) - 1
        right = torch.arange(len(batch.y)) < self.correct[epoch]
        guess = torch.where(right, batch.y, 1 - batch.y)
        return Output(torch.nn.functional.one_hot(guess, 2).float(), batch.x)

    def use(self, context: str) -> None:
        assert context == "alone"


def scripted_task() -> Task:
    ten = InMemory(torch.zeros(10, 1), torch.arange(10) % 2)
    return Task("script", "table", ("x", "y"), (1,), ten, ten, {"test": ten})


def scripted_recipe(**changes) -> Recipe:
    plain = {
        "optimizer": "sgd",
        "lr": 1.0,
        "sgd_momentum": 0.0,
        "batch_size": 10,
        "eval_batch_size": 10,
    }
    return Recipe(**plain | changes)
