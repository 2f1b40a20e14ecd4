"""Number formats and clipping, seen from inside the learner and against a loop by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from training_cases import (
    EVERYTHING,
    MEMORY,
    Noisy,
    Plain,
    memory_learner,
    plain_learner,
    quietly,
    small_task,
)

from hma.data import InMemory
from hma.errors import UserError
from hma.training import Recipe, fabric_for
from hma.training.order import TrainingOrder

RECIPE = replace(EVERYTHING, epochs=3, patience=None)


class Watching(Plain):
    """A backbone that notes the number formats it works in."""

    def __init__(self, width):
        super().__init__(width)
        self.seen = set()

    def forward(self, x):
        features = super().forward(x)
        self.seen.add((self.layers[0].weight.dtype, features.dtype, self.training))
        return features


def test_bf16_mixed_computes_in_16_bits_and_keeps_weights_in_32():
    task = small_task()
    learner = plain_learner(task, backbone=Watching)
    losses = []
    inner = learner.loss
    learner.loss = lambda batch: losses.append(inner(batch)) or losses[-1]
    record = quietly(learner, task, replace(RECIPE, precision="bf16-mixed", epochs=12))
    single, half = torch.float32, torch.bfloat16
    assert learner.module.backbone.seen == {(single, half, True), (single, half, False)}
    assert losses[0].dtype == single
    assert all(value.dtype != half for value in learner.module.state_dict().values())
    assert record.tests["near"]["alone"]["accuracy"] > 0.5  # of three classes


def test_bf16_mixed_comes_close_to_32_bits():
    task = small_task()
    full = quietly(memory_learner(task, backbone=Plain), task, RECIPE)
    mixed = quietly(
        memory_learner(task, backbone=Plain), task, replace(RECIPE, precision="bf16-mixed")
    )
    found = [epoch["train_loss"] for epoch in mixed.epochs]
    assert found == pytest.approx([epoch["train_loss"] for epoch in full.epochs], rel=0.03)
    assert found != [epoch["train_loss"] for epoch in full.epochs]


def test_what_is_remembered_in_mixed_precision_is_stored_in_32_bits():
    task = small_task()
    learner = memory_learner(task, backbone=Watching, config=replace(MEMORY, momentum=0.9))
    quietly(learner, task, replace(RECIPE, precision="bf16-mixed", epochs=1))
    assert learner.model.memory_state().features.dtype == torch.float32
    assert len(learner.model.memory_state().features) == 40


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can compute in 16 bits")
def test_16_mixed_is_refused_where_it_does_not_work():
    with pytest.raises(UserError, match="precision '16-mixed' does not work on cpu; use 'bf16-mix"):
        quietly(plain_learner(small_task()), small_task(), replace(RECIPE, precision="16-mixed"))


def test_a_fabric_of_another_precision_is_refused():
    fabric = fabric_for(Recipe(precision="bf16-mixed"))
    with pytest.raises(UserError, match="must have the recipe's precision '32-true', got 'bf16-mi"):
        quietly(plain_learner(small_task()), small_task(), RECIPE, fabric=fabric)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_run_is_the_loop_that_one_would_write_by_hand(optimizer, clip):
    task = small_task()
    recipe = Recipe(
        epochs=3, batch_size=32, lr=0.01, weight_decay=0.1, sgd_momentum=0.8, optimizer=optimizer,
        clip_norm=clip, selection="last",
    )  # fmt: skip
    learner, by_hand = plain_learner(task), plain_learner(task).module
    quietly(learner, task, recipe)
    kinds = {
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.1, momentum=0.8),
    }
    step = kinds[optimizer](by_hand.parameters())
    order = TrainingOrder(task.train.labels, 32, seed=0)
    for epoch in range(3):
        for places in order.epoch(epoch):
            step.zero_grad()
            logits = by_hand(task.train.x[places])
            nn.functional.cross_entropy(logits, task.train.labels[places]).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(by_hand.parameters(), clip)
            step.step()
    for name, value in by_hand.state_dict().items():
        torch.testing.assert_close(learner.module.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_batch_normalisation_never_meets_a_single_row():
    task = small_task(train=InMemory(torch.randn(33, 6), torch.arange(33) % 3))
    record = quietly(plain_learner(task, backbone=Noisy), task, replace(RECIPE, batch_size=16))
    assert len(record.epochs) == 3
