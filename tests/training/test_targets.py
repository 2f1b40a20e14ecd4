"""Soft labels, yes/no labels and numbers: trained, selected, resumed, against convex oracles."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn
from training_cases import EVERYTHING, MEMORY, Noisy, Plain, quietly, small_task

from hma.data import InMemory, Task
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.paper.rivals import batchformer, irm, knn, npt, random_environments
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.training import Interrupted, Recipe
from hma.training.identity import identity


def labelled(count, seed, target, width=6):
    """Rows whose labels follow from a linear function of them, with noise."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(width, target.outputs, generator=torch.Generator().manual_seed(7))
    x = torch.randn(count, width, generator=generator)
    z = x @ weights + 0.3 * torch.randn(count, target.outputs, generator=generator)
    if isinstance(target, SoftClasses):
        return InMemory(x, z.softmax(dim=1))
    if isinstance(target, YesNo):
        y = (z > 0).float()
        y[torch.rand(z.shape, generator=generator) < 0.3] = math.nan
        return InMemory(x, y)
    return InMemory(x, 50 + 10 * z[:, 0])


def task_of(target, rows=90):
    parts = {name: labelled(rows, seed, target) for seed, name in enumerate(["a", "b", "c"])}
    return Task("linear", "table", (), (6,), parts["a"], parts["b"], {"test": parts["c"]},
                target=target)  # fmt: skip


SOFT, SEVERAL, NUMBER = SoftClasses(3), YesNo(4), Number(50.0, 20.0)
BACKBONE = {"backbone": lambda task: Plain(task.shape[0])}
METHODS = {
    "erm": erm(**BACKBONE),
    "hma": with_memory(**BACKBONE, config=MEMORY),
    "knn": knn(erm(**BACKBONE)),
    "batchformer": batchformer(**BACKBONE),
    "npt": npt(**BACKBONE),
    "irm": irm(erm(**BACKBONE), weight=0.1),
}
RECIPE = Recipe(epochs=6, batch_size=16, lr=0.01)


@pytest.mark.parametrize("target", [SOFT, SEVERAL, NUMBER], ids=lambda target: target.kind)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_every_kind_of_label(method, target):
    task = random_environments(task_of(target))
    record = quietly(METHODS[method](task, 0), task, RECIPE)
    scores = next(iter(record.tests["test"].values()))
    chance = {"accuracy": 0.45, "auroc": 0.6, "rmse": float(task.train.labels.std())}
    if task.metric == "rmse":
        assert scores["rmse"] < 0.9 * chance["rmse"]
    else:
        assert scores[task.metric] > chance[task.metric]


def test_the_epoch_with_the_least_error_is_kept():
    task = task_of(NUMBER)
    record = quietly(METHODS["erm"](task, 0), task, replace(RECIPE, epochs=12, lr=0.3))
    errors = [epoch["validation"]["alone"]["rmse"] for epoch in record.epochs]
    assert record.selected_epoch == int(np.argmin(errors)) != int(np.argmax(errors))
    assert record.selection_rule.startswith("best validation rmse in context 'alone'")


@pytest.mark.parametrize("target", [SOFT, SEVERAL, NUMBER], ids=lambda target: target.kind)
def test_an_interrupted_run_of_any_label_ends_the_same(tmp_path, target):
    task = task_of(target)
    method = knn(with_memory(lambda task: Noisy(task.shape[0]), MEMORY))
    recipe = replace(EVERYTHING, epochs=3, balance="none", patience=None, checkpoint_every_steps=1)
    expected = quietly(method(task, 0), task, recipe, folder=tmp_path / "whole")
    learner = method(task, 0)
    steps, step = iter(range(99)), learner.after_step

    def after_step(batch):
        if next(steps) == 7:
            raise KeyboardInterrupt
        step(batch)

    learner.after_step = after_step
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        quietly(learner, task, recipe, folder=tmp_path / "parts")
    found = quietly(method(task, 1), task, recipe, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()


def test_the_kind_of_label_is_part_of_a_run_and_classes_stay_as_they_were():
    task = task_of(NUMBER)
    found = identity(METHODS["erm"](task, 0), task, RECIPE, 0, None)["task"]
    assert found["target"] == {"kind": "number", "centre": 50.0, "scale": 20.0}
    plain = small_task()
    assert plain.target == Classes(3)
    assert "target" not in identity(METHODS["erm"](plain, 0), plain, RECIPE, 0, None)["task"]


@pytest.mark.parametrize("balance", ["loss", "sampler"])
def test_only_classes_can_be_balanced(balance):
    task = task_of(NUMBER)
    message = f"balance must be 'none' for labels of the kind 'number', got '{balance}'"
    with pytest.raises(UserError, match=message):
        quietly(METHODS["erm"](task, 0), task, replace(RECIPE, balance=balance))


@pytest.mark.parametrize(
    ("target", "bad", "message"),
    [
        (SOFT, 0.7, "labels of the training rows of 'linear': y must hold rows of at least 0"),
        (SEVERAL, 0.7, "labels of the training rows of 'linear': y must hold 0, 1"),
        (NUMBER, math.inf, "labels of the training rows of 'linear': y must hold finite numbers"),
    ],
)
def test_labels_that_the_target_refuses_are_named_before_training(target, bad, message):
    task = task_of(target)
    task.train.labels[3] = bad
    with pytest.raises(UserError, match=message):
        quietly(METHODS["erm"](task, 0), task, RECIPE)


class Itself(nn.Module):
    """The row as its own features, so that the model is linear."""

    feature_dim = 6

    def forward(self, x):
        return x


CONVEX = Recipe(epochs=600, batch_size=90, lr=0.1, schedule="cosine", selection="last",
                evaluate_every=600)  # fmt: skip


def test_a_linear_model_of_numbers_ends_at_least_squares():
    task = task_of(NUMBER)
    learner = erm(lambda task: Itself())(task, 0)
    quietly(learner, task, CONVEX)
    split = task.tests["test"]
    oracle = LinearRegression().fit(task.train.x, task.train.labels)
    with torch.no_grad():
        said = NUMBER.expected(learner.predict(split.batch(torch.arange(90))))
    np.testing.assert_allclose(said.numpy(), oracle.predict(split.x), atol=0.05)


def test_a_linear_model_of_yes_no_labels_ends_at_a_logistic_regression_of_each():
    task = task_of(SEVERAL)
    generator = torch.Generator().manual_seed(0)
    flipped = torch.rand(90, 4, generator=generator) < 0.25  # so that no label is separable
    y = task.train.labels
    y[flipped] = 1 - y[flipped]
    learner = erm(lambda task: Itself())(task, 0)
    quietly(learner, task, CONVEX)
    known = ~y.isnan()
    weight = 1 / known.sum(dim=1).clamp(min=1)  # a row's loss is the mean over what it knows
    with torch.no_grad():
        said = SEVERAL.expected(learner.predict(task.train.batch(torch.arange(90))))
    for place in range(4):
        rows = known[:, place]
        oracle = LogisticRegression(C=math.inf).fit(
            task.train.x[rows], y[rows, place], sample_weight=weight[rows]
        )
        expected = oracle.predict_proba(task.train.x)[:, 1]
        np.testing.assert_allclose(said[:, place].numpy(), expected, atol=0.01)
