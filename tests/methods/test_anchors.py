"""Training rows that stand in for the batch."""

import pytest
import torch
from torch import nn

from hma.attention.config import HMAConfig
from hma.data import InMemory, Task
from hma.errors import UserError
from hma.methods import with_memory
from hma.methods.memory import anchor_places
from hma.paper.rivals import irm, random_environments
from hma.training import Recipe, SilentProgress, all_logits, evaluate, fit

SMALL = {"queue_size": 16, "slots_per_class": 1, "label_dim": 4, "num_heads": 2}


def task_of(rows=60):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % 2
    x = y[:, None] + torch.randn(rows, 4, generator=generator)
    parts = [InMemory(x[part], y[part]) for part in (slice(0, 40), slice(40, 50), slice(50, rows))]
    return Task("clouds", "table", ("a", "b"), (4,), parts[0], parts[1], {"test": parts[2]})


class Linear(nn.Module):
    feature_dim = 8

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x):
        return self.layer(x)


def backbone(task):
    return Linear()


def trained(method, task=None, folder=None, **recipe):
    task = task or task_of()
    learner = method(task, 0)
    recipe = Recipe(**{"epochs": 3, "batch_size": 16} | recipe)
    progress = SilentProgress()
    return learner, fit(learner, task, recipe, seed=0, folder=folder, progress=progress)


def anchored(**changes):
    return with_memory(backbone, HMAConfig.ablation("hma", **SMALL | changes), anchors=12)


@pytest.mark.parametrize("selection", ["best", "last"])
def test_anchors_are_training_rows_as_the_kept_weights_encode_them(selection):
    task = task_of()
    learner, record = trained(anchored(), task, selection=selection, epochs=4)
    assert list(record.tests["test"]) == ["batch", "batch-sorted", "alone", "anchors"]
    places = anchor_places(40, 12)
    assert len(set(places.tolist())) == 12
    with torch.no_grad():
        expected = learner.model.backbone(task.train.batch(places).x)
    torch.testing.assert_close(learner.model.anchors, expected)


def test_with_anchors_a_row_is_answered_alike_whatever_its_batch():
    learner, _ = trained(anchored())
    split = task_of().tests["test"]
    sizes = {c: [all_logits(learner, split, batch_size=n, context=c) for n in (2, 10)]
             for c in learner.contexts}  # fmt: skip
    torch.testing.assert_close(*sizes["anchors"])
    torch.testing.assert_close(*sizes["alone"])
    assert not torch.allclose(*sizes["batch-sorted"])
    assert not torch.allclose(sizes["anchors"][0], sizes["alone"][0])


def test_a_batch_of_a_row_and_the_anchors_is_what_the_row_sees_with_anchors():
    learner, _ = trained(anchored())
    task, model = task_of(), learner.model.eval()
    anchors = task.train.batch(anchor_places(40, 12)).x
    row = task.tests["test"].x[:1]
    learner.use("batch")
    beside = model(torch.cat([row, anchors]))[:1]
    learner.use("anchors")
    torch.testing.assert_close(model(row), beside)


def test_anchors_change_no_other_score():
    without = with_memory(backbone, HMAConfig.ablation("hma", **SMALL))
    _, plain = trained(without)
    _, more = trained(anchored())
    scores = dict(more.tests["test"])
    del scores["anchors"]
    assert scores == plain.tests["test"]


def test_a_run_with_anchors_is_read_back_with_them(tmp_path):
    learner, record = trained(anchored(), folder=tmp_path / "run")
    again, found = trained(anchored(), folder=tmp_path / "run")
    assert found == record
    assert torch.equal(again.model.anchors, learner.model.anchors)
    split = task_of().tests["test"]
    assert evaluate(again, split, batch_size=256) == record.tests["test"]


def test_rows_that_see_no_batch_have_no_anchors_and_wrapped_methods_keep_theirs():
    task = random_environments(task_of())
    param = HMAConfig.ablation("param", num_heads=2)
    assert with_memory(backbone, param, anchors=12)(task, 0).contexts == ("alone",)
    learner, _ = trained(irm(anchored(), weight=1.0), task)
    assert learner.contexts[-1] == "anchors"
    with pytest.raises(UserError, match="anchors must be a whole number of at least 0, got -1"):
        with_memory(backbone, HMAConfig.ablation("hma"), anchors=-1)
