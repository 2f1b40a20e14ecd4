"""Slots that start from the training rows: once, by the seed, and wherever a model is trained."""

import json
import os
import signal
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from training_cases import MEMORY, Noisy, Plain, memory_learner, quietly, small_task

from hma import MemoryClassifier, MemoryModel, MemoryRegressor, VoteConfig
from hma.backbones import Frozen
from hma.errors import UserError
from hma.methods import with_memory
from hma.methods.cached_features import cache_features
from hma.paper.rivals import irm
from hma.paper.rivals.invariance import random_environments
from hma.training import Interrupted, Recipe
from hma.training.identity import differences

VOTE = VoteConfig(key_dim=4, slots_per_class=2)
STARTS = ("samples", "class_means", "kmeans", "distilled")
RECIPE = Recipe(epochs=2, batch_size=16)


class Watched(Noisy):
    """A backbone that counts its forward passes, with dropout and without."""

    def __init__(self, width=6):
        super().__init__(width)
        self.rows = {True: 0, False: 0}

    def forward(self, x):
        self.rows[self.training] += len(x)
        return super().forward(x)


def started(learner, task, recipe=RECIPE, **options):
    """Train, and return the slots as the first step found them."""
    found, inner = [], learner.loss_of

    def watch(output, batch):
        found.append(learner.model.memory_state().slots)
        return inner(output, batch)

    learner.loss_of = watch
    quietly(learner, task, recipe, **options)
    return found[0]


@pytest.mark.parametrize("start", STARTS)
def test_the_first_step_finds_slots_at_the_training_rows_of_their_class(start):
    task = small_task()
    learner = memory_learner(task, config=replace(MEMORY, slot_init=start), backbone=Watched)
    batch = task.train.batch(torch.arange(90))
    with torch.no_grad():
        features = learner.model.backbone.eval()(batch.x)
    learner.model.backbone.rows[False] = 0
    slots, classes = started(learner, task), learner.model.synthetic.classes
    own = torch.stack([features[batch.y == label].mean(dim=0) for label in range(3)])
    spread = features.std(dim=0)
    assert ((slots - own[classes]).abs() < 4 * spread).all()
    if start == "class_means":
        torch.testing.assert_close(slots, own[classes], atol=float(spread.max() / 5), rtol=0)
    assert slots.std() > 0.05, "not the noise that they were built with"
    assert not learner.model.synthetic.waits


def test_training_rows_are_encoded_once_in_eval_mode_before_the_first_step():
    task = small_task()
    counts = []
    for start in ("normal", "class_means"):
        learner = memory_learner(task, config=replace(MEMORY, slot_init=start), backbone=Watched)
        started(learner, task)
        counts.append(learner.model.backbone.rows)
    assert counts[1][True] == counts[0][True]
    assert counts[1][False] == counts[0][False] + 90


def test_the_seed_decides_and_what_comes_after_is_drawn_as_ever():
    task = small_task()
    drawn = []
    for seed, start in ((0, "samples"), (0, "samples"), (1, "samples"), (0, "normal")):
        learner = memory_learner(task, config=replace(MEMORY, slot_init=start), backbone=Plain)
        inner, numbers = learner.after_step, []
        learner.after_step = lambda batch, inner=inner, numbers=numbers: (
            numbers.append(batch.ids.tolist()),
            numbers.append(torch.get_rng_state()),
            inner(batch),
        )
        slots = started(learner, task, seed=seed)
        drawn.append((slots, numbers))
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert drawn[0][1][0] == drawn[3][1][0], "the order of rows is that of the seed"
    assert torch.equal(drawn[0][1][1], drawn[3][1][1]), "random numbers were given back"


@pytest.mark.parametrize(
    ("config", "moment"),
    [
        (replace(MEMORY, contrastive=0.3), "start"),
        (replace(MEMORY, contrastive=0.3), "step"),
        (VOTE, "step"),  # its slots start when training is over
    ],
    ids=["hma-start", "hma-step", "vote-step"],
)
def test_a_run_stopped_while_it_starts_or_later_ends_as_if_it_had_not(tmp_path, config, moment):
    config = replace(config, slot_init="kmeans")
    task = small_task()
    whole = memory_learner(task, config=config)
    quietly(whole, task, RECIPE)
    learner = memory_learner(task, config=config)
    _press_ctrl_c(learner, moment)
    said = f"stopped by Ctrl-C after step {0 if moment == 'start' else 1} of 12"
    with pytest.raises(Interrupted, match=said):
        quietly(learner, task, RECIPE, folder=tmp_path)
    again = memory_learner(task, config=config)
    quietly(again, task, RECIPE, folder=tmp_path)
    for name, value in whole.module.state_dict().items():
        assert torch.equal(again.module.state_dict()[name], value), name


def _press_ctrl_c(learner, moment):
    """Have training stopped while its slots start, or after the first step."""
    before, after = learner.before_training, learner.after_step

    def stop_and(go_on, *given):
        os.kill(os.getpid(), signal.SIGINT)
        go_on(*given)

    if moment == "start":
        learner.before_training = lambda train, tick: before(train, partial(stop_and, tick))
    else:
        learner.after_step = partial(stop_and, after)


@pytest.mark.parametrize("start", ["normal", *STARTS])
def test_where_keys_are_learned_apart_slots_start_with_the_trained_backbone(monkeypatch, start):
    task, calls, inner = small_task(), [], MemoryModel.set_slots

    def watch(model, start, features, y, **options):
        inner(model, start, features, y, **options)
        calls.append((start, features, y, model.memory_state().slots))

    monkeypatch.setattr(MemoryModel, "set_slots", watch)
    learner = memory_learner(task, config=replace(VOTE, slot_init=start), backbone=Plain)
    quietly(learner, task, RECIPE)
    assert [call[0] for call in calls] == [start]
    _, features, y, slots = calls[0]
    order = task.train.batch(torch.arange(90))
    with torch.no_grad():
        now = learner.model.eval().backbone(order.x)
    assert all((now - row).norm(dim=1).min() < 1e-5 for row in features)
    if start == "class_means":
        own = torch.stack([features[y == label].mean(dim=0) for label in range(3)])
        wanted = own[learner.model.synthetic.classes]
        torch.testing.assert_close(slots, wanted, atol=float(features.std(dim=0).max() / 5), rtol=0)
    assert not learner.model.synthetic.waits


def test_slots_that_the_caller_started_stay():
    task = small_task()
    learner = memory_learner(task, config=replace(MEMORY, slot_init="kmeans"))
    learner.model.set_slots("zeros")
    assert not started(learner, task).any()


def test_features_that_are_known_start_slots_too(tmp_path):
    task = small_task()
    backbone = Frozen(Plain())
    known = cache_features(task, backbone, tmp_path)
    config = replace(MEMORY, slot_init="class_means")
    found = []
    for rows in (task, known):
        learner = with_memory(lambda _: backbone, config)(task, 0)
        found.append(started(learner, rows))
    torch.testing.assert_close(*found)


def test_a_method_around_the_memory_starts_its_slots_and_keeps_its_contrast():
    task = random_environments(small_task())
    config = replace(MEMORY, slot_init="class_means", contrastive=0.5, dropout=0.0)
    learner = irm(with_memory(lambda task: Plain(), config), weight=1.0)(task, 0)
    plain = irm(with_memory(lambda task: Plain(), replace(config, contrastive=0.0)), weight=1.0)
    batch = task.train.batch(torch.arange(30))
    assert learner.loss(batch) > plain(task, 0).loss(batch)
    quietly(learner, task, RECIPE)
    assert not learner.inner.model.synthetic.waits
    mixed = irm(with_memory(lambda task: Plain(), VOTE), weight=1.0)(task, 0)
    assert "memory_share" in quietly(mixed, task, RECIPE).measures
    assert int(mixed.inner.model.real.queue.written) == 90, "rows are remembered at the end"


def test_contrast_reaches_the_loss_of_training_by_its_weight():
    task = small_task()
    batch = task.train.batch(torch.arange(30))
    still = replace(MEMORY, dropout=0.0)
    losses = {}
    for weight in (0.0, 0.5, 1.0):
        config = replace(still, contrastive=weight)
        learner = memory_learner(task, config=config, backbone=Plain)
        losses[weight] = float(learner.loss(batch).detach())
    model = memory_learner(task, config=still, backbone=Plain).model
    contrast = model.contrast(model.backbone(batch.x), batch.y, ids=batch.ids)
    expected = float(contrast.mean().detach())
    assert losses[0.5] - losses[0.0] == pytest.approx(0.5 * expected, rel=1e-4)
    assert losses[1.0] - losses[0.0] == pytest.approx(expected, rel=1e-4)


# ------------------------------------------------------------------------ the estimators


@pytest.mark.parametrize("memory", ["hma", "vote"])
def test_the_estimator_starts_its_slots_from_its_rows_once(monkeypatch, memory):
    x, y = load_iris(return_X_y=True)
    calls, inner = [], MemoryModel.set_slots

    def watch(model, start, features, labels, **options):
        calls.append((start, len(features)))
        inner(model, start, features, labels, **options)

    monkeypatch.setattr(MemoryModel, "set_slots", watch)
    options = {"memory": memory, "slots_per_class": 2, "random_state": 0}
    options |= {"max_epochs": 2, "early_stopping": False, "linear": False}
    contrast = {"contrastive": 0.1} if memory == "hma" else {}
    model = MemoryClassifier(slot_init="kmeans", **contrast, **options).fit(x, y)
    assert calls == [("kmeans", len(np.unique(x, axis=0)))]
    model.partial_fit(x, y)
    assert len(calls) == 1
    MemoryClassifier(slot_init="kmeans", **options).partial_fit(x, y, classes=[0, 1, 2])
    assert calls[1:] == calls[:1]
    assert all(getattr(model.model_.config, name) == value for name, value in contrast.items())
    assert MemoryClassifier(**options).fit(x, y).model_.config.slot_init == "normal"


def test_a_regressor_has_slots_from_its_rows_but_no_contrast():
    x = np.random.default_rng(0).normal(size=(80, 3))
    options = {"slots_per_class": 1, "max_epochs": 1, "random_state": 0}
    model = MemoryRegressor(slot_init="class_means", **options).fit(x, x[:, 0])
    assert not model.model_.synthetic.waits
    with pytest.raises((UserError, ValueError), match="contrastive needs labels that rows can"):
        MemoryRegressor(memory="hma", contrastive=0.1, **options).fit(x, x[:, 0])
    with pytest.raises(UserError, match=r"'vote' has no .* contrastive=0\.1 .* set memory='hma'"):
        MemoryRegressor(contrastive=0.1, **options).fit(x, x[:, 0])


# ------------------------------------------------------------------- runs from before


def test_a_run_from_before_there_were_such_fields_goes_on():
    before = json.loads(json.dumps(asdict(MEMORY)))
    for name in ("contrastive", "contrast_temperature"):
        del before[name]
    assert differences({"config": before}, {"config": asdict(MEMORY)}) == []
    now = asdict(replace(MEMORY, contrastive=0.5))
    assert differences({"config": before}, {"config": now}) == [
        "config.contrastive was 0.0, is 0.5 now"
    ]
