"""Training with a memory that votes: what it holds when it is evaluated, and what it costs."""

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from hma.backbones import Frozen
from hma.config import HMAConfig
from hma.data import InMemory, Task
from hma.methods import with_hma
from hma.training import Recipe, SilentProgress, fit


def task_of(rows=60):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % 3
    x = 2.0 * one_hot(y, 4) + torch.randn(rows, 4, generator=generator)
    parts = [InMemory(x[part], y[part]) for part in (slice(0, 40), slice(40, 50), slice(50, rows))]
    return Task("clouds", "table", ("a", "b", "c"), (4,), parts[0], parts[1], {"test": parts[2]})


class Counting(nn.Module):
    """A backbone with dropout that counts the rows it encodes."""

    feature_dim = 8

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 8))
        self.rows = 0

    def forward(self, x):
        self.rows += len(x)
        return self.layers(x)


def trained(backbone, vote="added", **recipe):
    task = task_of()
    learner = with_hma(lambda task: backbone, HMAConfig(key_dim=4, vote=vote))(task, 0)
    recipe = Recipe(**{"epochs": 3, "batch_size": 16} | recipe)
    record = fit(learner, task, recipe, seed=0, progress=SilentProgress())
    return learner, task, record


@pytest.mark.parametrize("vote", ["mixed", "added"])
@pytest.mark.parametrize("selection", ["best", "last"])
def test_at_the_end_every_training_row_is_held_as_the_kept_weights_see_it(selection, vote):
    learner, task, _ = trained(Counting(), vote=vote, selection=selection)
    memory = learner.model.memory_state()
    everything = task.train.batch(memory.ids)
    assert memory.ids.sort().values.tolist() == list(range(40))
    assert torch.equal(memory.labels, everything.y)
    with torch.no_grad():
        now = learner.model.eval().backbone(everything.x)
    torch.testing.assert_close(memory.features, now)
    assert len(learner.model.real.queue.features) == 40, "no empty places are kept"
    assert learner.contexts == ("alone",)


def test_writing_again_twice_is_writing_again_once():
    task = task_of()
    for size in (16, None):
        config = HMAConfig(key_dim=4, vote="added", queue_size=size)
        learner = with_hma(lambda task: Counting(), config)(task, 0)
        for places in torch.split(torch.arange(40), 16):
            learner.after_step(task.train.batch(places))
        learner.before_evaluation(task.train, lambda: None)
        once = learner.model.memory_state()
        learner.before_evaluation(task.train, lambda: None)
        twice = learner.model.memory_state()
        assert torch.equal(once.ids, twice.ids)
        assert torch.equal(once.features, twice.features)
        with torch.no_grad():
            now = learner.model.eval().backbone(task.train.batch(once.ids).x)
        torch.testing.assert_close(once.features, now)


def test_a_step_encodes_its_batch_once_and_an_epoch_writes_every_row_again():
    backbone = Counting()
    trained(backbone, epochs=2)
    steps, again, validation, test = 2 * 40, 2 * 40, 2 * 10, 10
    assert backbone.rows == steps + again + validation + test


def test_rows_of_a_frozen_backbone_are_not_encoded_again():
    backbone = Counting()
    trained(Frozen(backbone), epochs=2)
    steps, validation, test = 2 * 40, 2 * 10, 10
    assert backbone.rows == steps + validation + test
