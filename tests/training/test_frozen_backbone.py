"""A backbone that stays as it is runs once per step, and the memory is the same as with two."""

import pytest
import torch
from torch import nn
from training_cases import Noisy, memory_learner, quietly, rows, small_task

from hma.backbones import mlp
from hma.backbones.frozen import Frozen
from hma.data import Batch, InMemory
from hma.methods import with_memory
from hma.training import Recipe, fabric_for

RECIPE = Recipe(epochs=2, batch_size=16)
STEPS = 2 * 6
EVALUATED = 2 + 2
"""Batches: two epochs of validation, two test splits; each is encoded once for all contexts."""


class Counted(nn.Module):
    """A backbone that counts its calls, and takes a tensor, a dict or an object with ``x``."""

    feature_dim = 16

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.inner = Noisy(width)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if isinstance(x, dict):
            x = x["values"]
        return self.inner(x if isinstance(x, torch.Tensor) else x.x)


def still(width):
    return Frozen(Counted(width))


def trained(backbone, task, recipe=RECIPE, **options):
    learner = memory_learner(task, backbone=backbone)
    quietly(learner, task, recipe, **options)
    return learner


def calls_of(learner):
    backbone = learner.model.backbone
    return (backbone.encoder if isinstance(backbone, Frozen) else backbone).calls


def test_a_frozen_backbone_runs_once_per_step():
    learner = trained(still, small_task())
    assert calls_of(learner) == STEPS + EVALUATED


def test_a_backbone_that_trains_runs_once_and_its_slow_copy_once():
    learner = trained(Counted, small_task())
    assert calls_of(learner) == STEPS + EVALUATED
    assert learner.model.momentum_encoder.encoder.calls == STEPS


def in_train_mode(width):
    """Frozen weights, but dropout and batch statistics as in training."""
    return Counted(width).requires_grad_(False)


def test_noise_of_the_forward_pass_never_enters_the_memory():
    task = small_task()
    learner = trained(in_train_mode, task, Recipe(epochs=2, batch_size=16, selection="last"))
    assert calls_of(learner) == 2 * STEPS + EVALUATED
    learner = memory_learner(task, backbone=in_train_mode)
    learner.module.train()
    batch = task.train.batch(torch.arange(8))
    learner.loss(batch)
    learner.after_step(batch)
    with torch.no_grad():
        expected = learner.model.backbone.eval()(batch.x)
    torch.testing.assert_close(learner.model.memory_state().features, expected)


def test_the_memory_holds_what_a_second_pass_would_have_written():
    task = small_task()
    learner = trained(still, task)
    memory = learner.model.memory_state()
    with torch.no_grad():
        expected = learner.model.backbone(task.train.x[memory.ids])
    torch.testing.assert_close(memory.features, expected)
    assert torch.equal(memory.labels, task.train.labels[memory.ids])


def test_features_of_another_batch_are_not_written():
    task = small_task()
    learner = memory_learner(task, backbone=still)
    learner.module.train()
    first, second = (task.train.batch(places) for places in torch.arange(16).split(8))
    learner.loss(first)
    learner.after_step(second)
    with torch.no_grad():
        expected = learner.model.backbone(second.x)
    torch.testing.assert_close(learner.model.memory_state().features, expected)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_dict_as_input_runs_once_too(precision):
    def of(split):
        return InMemory({"values": split.x}, split.labels)

    task = small_task(
        train=of(rows(90, 1)), validation=of(rows(60, 2)), tests={"near": of(rows(50, 3))}
    )
    recipe = Recipe(epochs=1, batch_size=16, precision=precision)
    learner = trained(still, task, recipe, fabric=fabric_for(recipe, accelerator="cpu"))
    assert calls_of(learner) == 6 + 1 + 1
    assert not learner.model.backbone._forward_hooks


def test_a_batch_of_graphs_runs_once_too():
    data = pytest.importorskip("torch_geometric.data")
    graphs = data.Batch.from_data_list([data.Data(x=torch.randn(1, 6)) for _ in range(8)])
    learner = memory_learner(small_task(), backbone=still)
    learner.module.train()
    batch = Batch(graphs, torch.arange(8) % 3, torch.arange(8))
    learner.loss(batch)
    learner.after_step(batch)
    assert calls_of(learner) == 1
    assert len(learner.model.memory_state().features) == 8


def test_without_a_queue_nothing_is_written():
    from hma.attention.config import HMAConfig

    task = small_task()
    config = HMAConfig.ablation("abd", label_dim=8, num_heads=2)
    learner = with_memory(lambda task: Frozen(mlp(6, hidden=(16,))), config)(task, 0)
    quietly(learner, task, RECIPE)
    assert len(learner.model.memory_state().features) == 0
