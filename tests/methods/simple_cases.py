"""Small tasks that the tests of simple baselines share, and what a learner answers."""

import math

import numpy as np
import torch
from torch import nn

from hma.backbones.frozen import Frozen
from hma.data import InMemory, Task
from hma.methods.simple.simple_row import LEAST_CHANCE
from hma.targets import Classes, Number

WIDTH = 4


def inputs(count, seed, missing=False):
    x = np.random.default_rng(seed).normal(size=(count, WIDTH)) * [1, 5, 0.2, 1] + [0, 9, 1, -3]
    x[:, 3] = x[:, 3].round()  # values that repeat
    if missing:
        x[np.random.default_rng(seed + 100).random(x.shape) < 0.2] = math.nan
    return x.astype(np.float32)


def task_of(label, target, *, missing=False, classes=("a",), count=150):
    splits = []
    for seed, rows in enumerate((count, 60, 50)):
        x = inputs(rows, seed, missing)
        splits.append(InMemory(torch.from_numpy(x), torch.as_tensor(label(np.nan_to_num(x), seed))))
    return Task(
        "rows", "table", classes, (WIDTH,), splits[0], splits[1], {"test": splits[2]}, target=target
    )


def class_task(count, *, missing=False, absent=()):
    def label(x, seed):
        noise = np.random.default_rng(seed + 7).normal(size=len(x))
        wanted = [k for k in range(count) if k not in absent]
        score = x[:, 0] + 0.1 * x[:, 1] + 0.3 * noise
        return np.array(wanted)[np.searchsorted(np.linspace(-0.2, 1.8, len(wanted) - 1), score)]

    return task_of(label, Classes(count), missing=missing, classes=tuple("abcdef"[:count]))


def number_task(*, missing=False):
    def label(x, seed):
        return (40 + 3 * x[:, 0] * x[:, 1] + x[:, 2]).astype(np.float32)

    return task_of(label, Number(centre=41.0, scale=7.0), missing=missing)


def fitted(method, task, seed=0):
    learner = method(task, seed)
    measures = learner.fit_at_once(task, seed, lambda done, total: None)
    return learner, measures


def answered(learner, split):
    with torch.no_grad():
        logits = learner.predict(split.batch(torch.arange(len(split))))
    return learner.target.expected(logits).double().numpy()


def floored(chances, classes, known):
    """Class probabilities once each class gets the least chance, also those that are not known."""
    whole = np.zeros((len(chances), classes))
    whole[:, known] = chances
    return (1 - LEAST_CHANCE * classes) * whole + LEAST_CHANCE


def floored_answers(model, x, classes):
    return floored(model.predict_proba(x), classes, model.classes_)


def encoder(**options):
    torch.manual_seed(1)
    layer = nn.Linear(WIDTH, 7)
    layer.feature_dim = 7
    return Frozen(layer, **options)
