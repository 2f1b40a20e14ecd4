"""What rows add to the features of the head, against the formula written out in float64."""

import copy
from dataclasses import asdict, replace

import pytest
import torch
from test_voting import WIDTH, model_of, shares
from torch import nn
from torch.nn.functional import cross_entropy, gelu, layer_norm

import hma
from hma import HMA, ConfigError, HMAConfig
from hma.attention import Projected
from hma.retrieval import BestRows
from hma.row_values import MOST_APART, RowValues
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.training.identity import differences

GATED = {"vote": "gated", "values": True, "dropout": 0.0}
TARGETS = [Classes(3), Classes(1), SoftClasses(3), YesNo(2), Number(centre=5.0, scale=2.0)]


def with_values(target, rows=12, **config):
    """Return a model whose gates and last layer are as if it had learned, with what it holds."""
    model, x, y = model_of(target, rows, **GATED | config)
    with torch.no_grad():
        model.vote.gate.fill_(0.5)
        model.vote.values.gate.fill_(0.7)
        nn.init.normal_(model.vote.values.feed_forward[-1].weight)
    return model, x, y


def head_reads(model, query, rows, labels, kept=None):
    """Return what the head reads of one query, row by row in float64.

    ``kept`` are the rows whose differences are looked at; all of them if not given.
    """
    vote = copy.deepcopy(model.vote).eval().double()
    weights, values = shares(vote, query, rows), vote.values
    keys = [vote.to_keys(vote.norm(one.double())) for one in (query, rows)]
    said = torch.zeros(WIDTH, dtype=torch.float64)
    for place, weight in enumerate(weights):
        ballot = model.target.ballots(labels[place : place + 1])[0].double()
        said += weight * (values.of_labels.weight @ ballot)
        if kept is None or place in kept:
            apart = values.apart.weight @ (keys[0] - keys[1][place]) + values.apart.bias
            said += weight * (values.of_apart.weight @ apart.clamp(min=0))
    mixed = query.double() + values.gate * said
    first, _, _, last = values.feed_forward
    normalised = layer_norm(mixed, (WIDTH,), values.norm.weight, values.norm.bias)
    hidden = gelu(first.weight @ normalised + first.bias)
    return mixed + last.weight @ hidden + last.bias


def assert_head_reads(logits, model, wanted, vote):
    """Compare a row of logits with the head over what it should have read, and the vote."""
    torch.testing.assert_close(logits, model.head(wanted.float()) + vote, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.kind} {target.outputs}")
@torch.no_grad()
def test_the_head_reads_features_labels_and_differences_of_the_formula(target):
    model, x, _ = with_values(target, slots_per_class=1)
    model.eval()
    queries, rows = model.backbone(torch.randn(4, 3)), model.backbone(x)
    found = model.vote.answer(queries, model.memories_with(), model.real)
    everything = torch.cat([rows, model.synthetic.slots])
    labels = torch.cat([model.real.queue.labels[:12], model.synthetic.labels.to(rows.device)])
    for query, logits, vote in zip(queries, model.classify(queries), found.logits, strict=True):
        assert_head_reads(logits, model, head_reads(model, query, everything, labels), vote)


@torch.no_grad()
def test_in_training_a_row_is_mixed_with_all_but_itself():
    model, x, y = with_values(Classes(3))
    rows, ids = model.backbone(x), torch.arange(4)
    kept = torch.arange(12)
    learned = {"candidates": None, "batch": True, "gather": False}
    votes = model.vote.learn(rows[:4], model.real, None, ids=ids, **learned)
    logits = model.train()(x[:4], ids=ids)
    for row in range(4):
        others = kept != row
        wanted = head_reads(model, rows[row], rows[others], y[others])
        assert_head_reads(logits[row], model, wanted, votes.logits[row])


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_of_many_rows_the_differences_of_those_that_count_most_are_added(training):
    count = MOST_APART + 20
    model, x, y = with_values(Classes(3), rows=count, batch_attention=False)
    query, rows = model.backbone(torch.randn(1, 3)), model.backbone(x)
    weights = shares(copy.deepcopy(model.vote), query[0], rows)
    kept = set(weights.topk(MOST_APART).indices.tolist())
    wanted = head_reads(model, query[0], rows, y, kept)
    model.train(training)
    found = model.vote(query, [model.memories_with().real]).mixed[0]
    torch.testing.assert_close(found, wanted.float(), atol=1e-4, rtol=1e-4)
    everything = head_reads(model, query[0], rows, y)
    assert not torch.allclose(found, everything.float(), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_rows_that_were_searched_for_add_what_they_add_among_all():
    model, _, _ = with_values(Classes(3), rows=MOST_APART + 20)
    x = torch.randn(4, 3)
    whole = model.eval()(x)
    model.real.nearest = BestRows(k=MOST_APART + 20, block=50)
    torch.testing.assert_close(model(x), whole)


@pytest.mark.parametrize("vote", ["added", "gated"])
def test_values_start_as_the_plain_vote(vote):
    model, x, _ = model_of(Classes(3), vote=vote, values=True)
    plain, _, _ = model_of(Classes(3), vote=vote)
    assert not any("values" in name for name in plain.state_dict())
    left = plain.load_state_dict(model.state_dict(), strict=False)
    assert all(name.startswith("vote.values.") for name in left.unexpected_keys)
    assert left.missing_keys == []
    for training in (True, False):
        ids = torch.arange(12)
        said = [one.train(training)(x, ids=ids) for one in (model, plain)]
        assert torch.equal(*said)


def test_the_gate_learns_first_and_then_everything_behind_it():
    model, x, y = model_of(Classes(3), **GATED)
    ids = torch.arange(12)
    cross_entropy(model(x, ids=ids), y).backward()
    values = model.vote.values
    assert values.gate.grad.abs() > 0
    assert not values.of_labels.weight.grad.any()
    model, x, y = with_values(Classes(3))
    cross_entropy(model(x, ids=ids), y).backward()
    assert model.vote.to_keys.weight.grad.abs().sum() > 0
    for name, weight in model.vote.values.named_parameters():
        assert weight.grad.abs().sum() > 0, name


def test_no_row_is_mixed_with_its_own_label():
    model, x, _ = with_values(Classes(3))
    ids = torch.arange(4)
    with torch.no_grad():
        before = model.train()(x[:4], ids=ids)
        for row in range(4):
            was = int(model.real.queue.labels[row])
            model.real.queue.labels[row] = (was + 1) % 3
            torch.testing.assert_close(model(x[:4], ids=ids)[row], before[row])
            model.real.queue.labels[row] = was


@torch.no_grad()
def test_an_empty_memory_adds_nothing_and_slots_alone_can_be_read():
    model = HMA(nn.Linear(3, WIDTH), 3, HMAConfig(**GATED), feature_dim=WIDTH)
    x = torch.randn(4, 3)
    model.vote.values.gate.fill_(5.0)
    plain = model.head(model.backbone(x))
    torch.testing.assert_close(model(x, ids=torch.arange(4)), plain)
    torch.testing.assert_close(model.eval()(x), plain)
    config = HMAConfig(**GATED, queue_size=0, slots_per_class=2)
    slots = HMA(model.backbone, 3, config, feature_dim=WIDTH)
    slots.vote.values.gate.fill_(5.0)
    assert not torch.allclose(slots(x), slots.head(slots.backbone(x)))


class Viewed(nn.Linear):
    """A backbone that offers its inputs to keys."""

    feature_dim = WIDTH

    def key_view(self):
        view = nn.Identity()
        view.feature_dim = 3
        return view


@torch.no_grad()
def test_only_what_the_head_reads_is_added_to():
    model = HMA(Viewed(3, WIDTH), 3, HMAConfig(**GATED, key_dim=4))
    assert model.feature_dim == WIDTH + 3
    assert model.vote.values.of_labels.out_features == WIDTH
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    model.remember(x, y, ids=torch.arange(5))
    assert model(x, ids=torch.arange(5)).shape == model.eval()(x).shape == (5, 3)


def test_a_frozen_memory_and_a_compiled_model_answer_as_before():
    model, _, _ = with_values(Classes(3), slots_per_class=1)
    x = torch.randn(4, 3)
    wanted = model.eval()(x)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), wanted)
    model.freeze_memory()
    torch.testing.assert_close(model(x), wanted)
    with torch.no_grad():
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), wanted)


def test_a_model_with_values_is_saved_and_explained(tmp_path):
    model, x, _ = with_values(Classes(3), slots_per_class=1)
    hma.save(model.eval(), tmp_path)
    again = hma.load(tmp_path, nn.Linear(3, WIDTH))
    assert torch.equal(again(x), model(x))
    assert again.config == replace(model.config, context="alone")
    found = hma.explain(model, x)
    torch.testing.assert_close(found.logits, model(x))
    torch.testing.assert_close(found.queue.sum(1) + found.slots.sum(1), torch.ones(12))
    query = torch.randn(1, 3)
    left = hma.contributions(model, query)
    with torch.no_grad():
        with_it = model(query).softmax(dim=1)[0, left.output]
        model.forget(torch.tensor([5]))
        without = model(query).softmax(dim=1)[0, left.output]
    torch.testing.assert_close(left.queue[5], with_it - without, atol=1e-5, rtol=1e-4)


def test_what_was_stored_without_the_field_has_no_values():
    now = asdict(HMAConfig(vote="gated"))
    before = {name: value for name, value in now.items() if name != "values"}
    assert HMAConfig.from_dict(HMAConfig.from_before(before)) == HMAConfig(vote="gated")
    assert differences({"config": before}, {"config": now}) == []
    other = {"config": now | {"values": True}}
    assert differences({"config": before}, other) == ["config.values was false, is true now"]


def test_at_wide_features_a_memory_with_values_costs_little():
    model = HMA(nn.Identity(), 10, HMAConfig(vote="gated", values=True), feature_dim=2048)
    assert sum(weight.numel() for weight in model.parameters()) < 3_000_000


def test_differences_cost_no_more_than_the_rows_that_count_most():
    """What is made for each pair of query and row never has more rows than are kept."""
    seen = []
    values = RowValues(votes=2, dim=5, key_dim=3)
    values.dropout.register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape)))
    rows = Projected(torch.randn(1, 500, 3), torch.rand(1, 500, 2))
    weights = torch.rand(1, 4, 500).softmax(dim=-1)
    values(torch.randn(4, 5), torch.randn(4, 3), rows.mixed(weights)[0], [rows], [weights])
    assert seen == [(4, MOST_APART, 3)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"got vote='mixed'.*take vote='gated'"),
        ({"vote": "alone"}, r"got vote='alone', where no head reads them; take vote='gated'"),
        ({"similarity": "dot", "queue_size": 8}, r"values=True needs similarity='distance'"),
        ({"vote": "gated", "values": 1}, r"values must be True or False, got 1"),
    ],
)
def test_what_cannot_have_values_is_said(fields, message):
    with pytest.raises(ConfigError, match=message):
        HMAConfig(**{"values": True} | fields)
