"""The released module against its code, written out with loops in float64."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy
from training_cases import interrupted_at, quietly

from hma.backbones import mlp
from hma.data.sets.digits import digits
from hma.errors import UserError
from hma.paper.rivals import released_hma
from hma.training import Interrupted, Recipe

SIZES = {"label_dim": 4, "queue_size": 8, "slots_per_class": 2, "num_heads": 2}
METHOD = released_hma(lambda task: mlp(64, hidden=(8,)), **SIZES)


@pytest.fixture(scope="module")
def task():
    return digits(0, per_class=4)


@torch.no_grad()
def read_by_hand(block, query, memory):
    """Return what a token ``(D,)`` becomes by reading tokens ``(K, D)``."""
    width = len(query) // block.heads
    q = block.to_queries(block.norm_queries(query))
    seen = block.norm_memory(memory)
    keys, values = block.to_keys(seen), block.to_values(seen)
    read = torch.zeros_like(query)
    for part in (slice(h * width, (h + 1) * width) for h in range(block.heads)):
        scores = [math.exp(q[part] @ key[part] / math.sqrt(len(query))) for key in keys]
        read[part] = sum(s / sum(scores) * v[part] for s, v in zip(scores, values, strict=True))
    hidden = block.residual(query) + read
    return hidden + block.feed_forward(block.norm_hidden(hidden))


def test_logits_are_the_released_codes(task):
    module = METHOD(task, 0).module.double().eval()
    torch.nn.init.normal_(module.slots)
    batch = task.train.batch(torch.arange(5))
    x = batch.x.double()
    unknown, features = module.table.weight[10], module.backbone(x).detach()
    tokens = [torch.cat([one, unknown]).detach() for one in features]
    first = torch.stack(
        [read_by_hand(module.real, one, torch.cat([one[None], module.queue])) for one in tokens]
    )
    labels = module.table.weight[[c for c in range(10) for _ in range(2)]]
    around = torch.cat([first, torch.cat([module.slots, labels], dim=1)]).detach()
    second = torch.stack([read_by_hand(module.synthetic, one, around) for one in first])
    torch.testing.assert_close(module(x), module.head(second[:, 8:]))
    torch.testing.assert_close(module.queue.norm(dim=1), torch.ones(8).double())


def test_rows_are_stored_before_the_step_by_an_encoder_that_moved_first(task):
    learner = METHOD(task, 0)
    module = learner.module.train()
    batch = task.train.batch(torch.arange(4))
    with torch.no_grad():
        next(module.backbone.parameters()).add_(1.0)
    slow = [one.clone() for one in module.slow.parameters()]
    before = module.queue.clone()
    learner.loss(batch)
    for was, fast, now in zip(
        slow, module.backbone.parameters(), module.slow.parameters(), strict=True
    ):
        torch.testing.assert_close(now, 0.999 * was + 0.001 * fast)
    expected = torch.cat([module.slow(batch.x), module.table(batch.y)], dim=1)
    torch.testing.assert_close(module.queue[:4], expected)
    assert torch.equal(module.queue[4:], before[4:])
    assert int(module.place) == 4
    learner.loss(task.train.batch(torch.arange(3)))  # 3 does not divide 8
    assert int(module.place) == 4
    torch.testing.assert_close(module.queue[:4], expected)  # labels stay as they were embedded
    module.eval()
    learner.loss(batch)
    assert int(module.place) == 4


def test_the_loss_is_the_cross_entropy_and_the_contrast(task):
    batch = task.train.batch(torch.arange(6))
    plain, more = (
        METHOD(task, 0),
        released_hma(lambda task: mlp(64, hidden=(8,)), contrast=8.0, **SIZES)(task, 0),
    )
    for learner in (plain, more):
        learner.module.eval()
    torch.testing.assert_close(plain.loss(batch), cross_entropy(plain.predict(batch), batch.y))
    assert more.loss(batch) > plain.loss(batch)


def test_a_command_that_never_stores_leaves_the_noise(task):
    learner = released_hma(lambda task: mlp(64, hidden=(8,)), stores=False, **SIZES)(task, 0)
    before = learner.module.queue.clone()
    learner.loss(task.train.batch(torch.arange(4)))
    assert torch.equal(learner.module.queue, before)


def test_a_run_is_tested_in_file_order_too_and_resumes(task, tmp_path):
    recipe = Recipe(epochs=2, batch_size=8, lr=1e-2)
    whole = METHOD(task, 0)
    expected = quietly(whole, task, recipe, folder=tmp_path / "whole")
    assert list(expected.tests["test"]) == ["batch", "batch-sorted"]
    with pytest.raises(Interrupted):
        quietly(interrupted_at(METHOD(task, 0), 6), task, recipe, folder=tmp_path / "parts")
    found = quietly(METHOD(task, 5), task, recipe, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()
    slots = whole.module.slots.detach().view(10, 2, 8)
    assert torch.equal(slots[:, 0], slots[:, 1])  # slots of a class stay alike


def test_what_does_not_fit_is_one_line(task):
    with pytest.raises(UserError, match="num_heads must divide the width of a token, got 5 and 12"):
        released_hma(lambda task: mlp(64, hidden=(8,)), **SIZES | {"num_heads": 5})(task, 0)
    with pytest.raises(UserError, match="queue_size must be a whole number of at least 1, got 0"):
        released_hma(lambda task: mlp(64), **SIZES | {"queue_size": 0})
