"""Batches held for a step against one joint batch, and how the model is found."""

from dataclasses import replace

import pytest
import torch
from plain_training import expect_same, follows, fresh_model, in_batches, rows, trained_by_hand
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

from hma import HMA, HMAConfig, VoteConfig, VotingMemory
from hma.adapters import writing
from hma.adapters.writing import StepWriter, WithIds, expect_parts, find_memory_model, replay_rows
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
    writer = StepWriter(written, expect_parts)
    for batch in zip(x.split(sizes), y.split(sizes), strict=True):
        writer.hold(batch)
    assert len(written.memory_state().labels) == 0
    writer.write()
    joint.remember(x, y)
    expect_same(written, joint)
    writer.write()
    expect_same(written, joint)  # nothing is held any more


def started():
    config = replace(fresh_model().config, slot_init="class_means")
    return HMA(fresh_model().backbone, 3, config)


def test_slots_that_wait_start_from_the_rows_and_from_nothing_else():
    model, data = started(), rows(30)
    writer = StepWriter(model, expect_parts)
    writer.start([])
    assert model.synthetic.waits, "rows that cannot be asked for again"
    writer.start([(*batch, torch.arange(len(batch[1]))) for batch in in_batches(data, 8)])
    torch.manual_seed(0)
    wanted = started()
    wanted.start_slots(in_batches(data, 8))
    near = model.memory_state().slots - wanted.memory_state().slots
    assert near.abs().max() < 0.2 * wanted.memory_state().slots.std()
    before = model.memory_state().slots
    writer.start(in_batches(rows(9), 3))
    assert torch.equal(model.memory_state().slots, before), "once"


def test_slots_of_a_memory_that_is_learned_last_wait_for_that():
    config = VoteConfig(key_dim=4, slots_per_class=2, slot_init="class_means")
    model, data = VotingMemory(fresh_model().backbone, 3, config), rows(30)
    writer = StepWriter(model, expect_parts)
    writer.start(in_batches(data, 8))
    assert model.synthetic.waits
    writer.finish(in_batches(data, 8))
    assert not model.synthetic.waits


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
    model = HMA(backbone, 3, HMAConfig(label_dim=16, queue_size=20, momentum=0.0)).train()
    assert model.momentum_encoder is None
    writer = StepWriter(model, expect_parts)
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
    writer = StepWriter(model, expect_parts)
    for batch in in_batches(rows(6), 3):
        writer.hold(batch)
    writer.write()
    assert len(model.memory_state().labels) == 0


def test_a_frozen_memory_refuses_many_batches_as_it_refuses_one():
    model = fresh_model()
    model.freeze_memory()
    for count in (1, 2):
        writer = StepWriter(model, expect_parts)
        for batch in in_batches(rows(3 * count), 3):
            writer.hold(batch)
        with pytest.raises(RuntimeError, match="memory is frozen"):
            writer.write()


@pytest.mark.parametrize(
    ("batch", "received"),
    [
        ({"x": 1}, "got dict; say how"),
        ((1, 2, 3, 4), "got tuple of 4 parts"),
        (torch.zeros(2, 3), "got Tensor;"),
    ],
)
def test_a_batch_that_is_something_else_names_unpack(batch, received):
    message = rf"batch must be \(x, y\) or \(x, y, ids\), {received}.*unpack="
    with pytest.raises(UserError, match=message):
        expect_parts(batch)


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


def numbered(data, size):
    return DataLoader(WithIds(TensorDataset(*data)), batch_size=size, shuffle=True)


def test_a_memory_that_is_learned_last_holds_no_batch_and_each_id_once(monkeypatch):
    monkeypatch.setattr(writing, "BATCHES_OF_IDS", 2)
    model, data = VotingMemory(mlp(6, hidden=(16,)), 3, VoteConfig(key_dim=4)), rows(12)
    writer = StepWriter(model, expect_parts)
    for _ in range(9):
        writer.hold((data[0][:5], data[1][:5], torch.arange(5)))
        writer.write()
        assert not writer.held
        assert sum(map(len, writer._trained_on)) <= 2 * 5
    writer.finish(replay_rows(numbered(data, 4)))
    assert sorted(model.memory_state().ids.tolist()) == [0, 1, 2, 3, 4]


def test_rows_come_again_in_their_order_and_draw_nothing_by_chance():
    data = rows(10)
    before = torch.get_rng_state()
    x, y, ids = (torch.cat(parts) for parts in zip(*replay_rows(numbered(data, 4)), strict=True))
    assert torch.equal(torch.get_rng_state(), before)
    assert ids.tolist() == list(range(10))
    assert torch.equal(x, data[0])
    assert torch.equal(y, data[1])


def test_a_loader_with_a_batch_sampler_and_one_of_whole_batches_come_again_too():
    data = WithIds(TensorDataset(*rows(10)))
    sampler = BatchSampler(RandomSampler(data), 3, drop_last=True)
    assert sum(len(y) for _, y, _ in replay_rows(DataLoader(data, batch_sampler=sampler))) == 10
    whole = [tuple(batch) for batch in numbered(rows(10), 5)]
    again = list(replay_rows(DataLoader(whole, batch_size=None)))
    assert torch.equal(again[1][2], whole[1][2])


def test_a_stream_does_not_come_again():
    class Stream(IterableDataset):
        def __iter__(self):
            raise AssertionError

    assert list(replay_rows(DataLoader(Stream()))) == []
    assert list(replay_rows([1, 2])) == []


def test_the_one_model_inside_is_found_wherever_it_is_and_a_given_one_wins():
    model, other = fresh_model(), fresh_model()
    assert find_memory_model(model) is model
    assert find_memory_model(nn.ModuleDict({"deep": nn.Sequential(nn.Identity(), model)})) is model
    assert find_memory_model(nn.Sequential(model), other) is other
    with pytest.raises(
        UserError, match=r"Identity holds no memory of hma; pass RememberCallback\(model="
    ):
        find_memory_model(nn.Identity())
    with pytest.raises(UserError, match=r"holds 2 of them \(a, b\); pass RememberCallback\(model="):
        find_memory_model(nn.ModuleDict({"a": model, "b": other}))
