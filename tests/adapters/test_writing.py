"""Batches held for a step against one joint batch, and how the model is found."""

import pytest
import torch
from plain_training import expect_same, follows, fresh_model, in_batches, rows, trained_by_hand
from torch import nn

from hma import HMA, HMAConfig
from hma.adapters.writing import StepWriter, find_hma, pair
from hma.backbones import mlp
from hma.errors import UserError


def test_the_oracle_tells_a_write_before_the_step_from_one_after_it():
    steps = [[batch] for batch in in_batches(rows(20), 8)]
    after, before = trained_by_hand(steps), trained_by_hand(steps, write="before")
    assert follows(after, trained_by_hand(steps))
    assert not follows(before, after)


@pytest.mark.parametrize("sizes", [[5], [5, 3], [8, 8, 8], [1, 30, 2], [0, 4]])
def test_held_batches_are_written_as_one_joint_batch(sizes):
    x, y = rows(sum(sizes))
    written, joint = fresh_model(), fresh_model()
    for model in (written, joint):  # so that the momentum encoder has somewhere to go
        nn.init.ones_(model.backbone.layers[0].weight)
    writer = StepWriter(written, pair)
    for batch in zip(x.split(sizes), y.split(sizes), strict=True):
        writer.hold(batch)
    assert len(written.memory_state().labels) == 0
    writer.write()
    joint.remember(x, y)
    expect_same(written, joint)
    writer.write()
    expect_same(written, joint)  # nothing is held any more


def test_ids_are_kept_and_batches_without_them_are_unknown():
    model = fresh_model()
    writer = StepWriter(model, lambda batch: batch)
    x, y = rows(5)
    writer.hold((x[:2], y[:2], torch.tensor([40, 41])))
    writer.hold((x[2:], y[2:]))
    writer.write()
    assert model.memory_state().ids.tolist() == [40, 41, -1, -1, -1]
    writer.hold((x[:1], y[:1], torch.tensor([7])))
    writer.write()
    assert model.memory_state().ids.tolist() == [40, 41, -1, -1, -1, 7]


def test_a_backbone_without_a_momentum_encoder_is_encoded_without_gradients_and_in_eval_mode():
    backbone = mlp(6, hidden=(16,), dropout=0.5)
    model = HMA(backbone, 3, HMAConfig.paper(label_dim=16, queue_size=20, momentum=0.0)).train()
    assert model.momentum_encoder is None
    writer = StepWriter(model, pair)
    x, y = rows(6)
    writer.hold((x[:4], y[:4]))
    writer.hold((x[4:], y[4:]))
    writer.write()
    assert model.training
    assert backbone.training
    torch.testing.assert_close(model.memory_state().features, backbone.eval()(x).detach())


@pytest.mark.parametrize("row", ["abd", "abd+syn", "param"])
def test_a_model_without_a_queue_writes_nothing(row):
    model = HMA(mlp(6, hidden=(16,)), 3, HMAConfig.ablation(row))
    writer = StepWriter(model, pair)
    for batch in in_batches(rows(6), 3):
        writer.hold(batch)
    writer.write()
    assert len(model.memory_state().labels) == 0


def test_a_frozen_memory_refuses_many_batches_as_it_refuses_one():
    model = fresh_model()
    model.freeze_memory()
    for count in (1, 2):
        writer = StepWriter(model, pair)
        for batch in in_batches(rows(3 * count), 3):
            writer.hold(batch)
        with pytest.raises(RuntimeError, match="memory is frozen"):
            writer.write()


@pytest.mark.parametrize(
    ("batch", "received"),
    [
        ({"x": 1}, "got dict; say how"),
        ((1, 2, 3), "got tuple of 3 parts"),
        (torch.zeros(2, 3), "got Tensor;"),
    ],
)
def test_a_batch_that_is_no_pair_names_unpack(batch, received):
    with pytest.raises(UserError, match=rf"batch must be a pair \(x, y\), {received}.*unpack="):
        pair(batch)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((1,), r"must return \(x, y\) or \(x, y, ids\), got tuple"),
        (torch.zeros(2, 2), "got Tensor"),
        ((torch.zeros(2), [0, 1]), "class ids y as a tensor, got list"),
    ],
)
def test_what_unpack_returns_is_checked(parts, message):
    with pytest.raises(UserError, match=message):
        StepWriter(fresh_model(), lambda _: parts).hold(None)


def test_the_one_model_inside_is_found_wherever_it_is_and_a_given_one_wins():
    model, other = fresh_model(), fresh_model()
    assert find_hma(model) is model
    assert find_hma(nn.ModuleDict({"deep": nn.Sequential(nn.Identity(), model)})) is model
    assert find_hma(nn.Sequential(model), other) is other
    with pytest.raises(
        UserError, match=r"Identity holds no hma.HMA; pass RememberCallback\(model="
    ):
        find_hma(nn.Identity())
    with pytest.raises(UserError, match=r"holds 2 of them \(a, b\); pass RememberCallback\(model="):
        find_hma(nn.ModuleDict({"a": model, "b": other}))
