"""Training with a memory that votes: what it holds when it is evaluated, and what it costs."""

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from hma.data import InMemory, Task
from hma.methods import with_memory
from hma.training import Recipe, SilentProgress, fit
from hma.vote.config import VoteConfig


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


def trained(backbone, **recipe):
    task = task_of()
    learner = with_memory(lambda task: backbone, VoteConfig(key_dim=4))(task, 0)
    recipe = Recipe(**{"epochs": 3, "batch_size": 16} | recipe)
    record = fit(learner, task, recipe, seed=0, progress=SilentProgress())
    return learner, task, record


@pytest.mark.parametrize("selection", ["best", "last"])
def test_at_the_end_every_training_row_is_held_as_the_kept_weights_see_it(selection):
    learner, task, _ = trained(Counting(), selection=selection)
    memory = learner.model.memory_state()
    everything = task.train.batch(memory.ids)
    assert memory.ids.sort().values.tolist() == list(range(40))
    assert torch.equal(memory.labels, everything.y)
    with torch.no_grad():
        now = learner.model.eval().backbone(everything.x)
    torch.testing.assert_close(memory.features, now)
    assert len(learner.model.real.queue.features) == 40, "no empty places are kept"
    assert learner.contexts == ("alone",)


def test_a_step_encodes_its_batch_once_and_the_end_every_row_once_more():
    backbone = Counting()
    trained(backbone, epochs=2)
    steps, validation, learned, test = 2 * 40, 2 * 10, 40 + 10, 10
    assert backbone.rows == steps + validation + learned + test
