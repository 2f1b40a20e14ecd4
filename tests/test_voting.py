"""The vote by distance, against the formula written out in float64."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import hma
from hma import HMA, HMAConfig
from hma.config import ConfigError
from hma.retrieval import BestRows
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.targets.target import NO_VOTE

WIDTH = 6


def model_of(target, rows=12, seed=0, **config):
    torch.manual_seed(seed)
    usual = {"vote": "added", "key_dim": 4, "key_dropout": 0.0, "candidates": None}
    config = HMAConfig(**usual | config)
    model = HMA(nn.Linear(3, WIDTH), config=config, target=target, feature_dim=WIDTH)
    x = torch.randn(rows, 3)
    y = labels_of(target, rows)
    model.remember(x, y, ids=torch.arange(rows))
    return model, x, y


def labels_of(target, rows):
    if isinstance(target, Number):
        return torch.randn(rows) * target.scale + target.centre
    if isinstance(target, YesNo):
        y = (torch.rand(rows, target.count) > 0.5).float()
        return y.masked_fill(torch.rand(rows, target.count) < 0.3, math.nan)
    if isinstance(target, SoftClasses):
        return torch.rand(rows, target.count).softmax(dim=1)
    return torch.arange(rows) % target.table_rows


def shares(vote, query, rows):
    """Return the weight of each row for one query, slowly, in float64."""
    read = vote.double()
    keys = [read.to_keys(read.norm(one)) for one in (query.double(), rows.double())]
    sharpness = float(vote.log_sharpness.exp()) / math.sqrt(len(keys[0]))
    scores = torch.stack([-sharpness * (keys[0] - key).square().sum() for key in keys[1]])
    return scores.softmax(dim=0)


def answer(target, weights, y):
    """Return the vote's logits of one query from the shares of its rows."""
    if isinstance(target, Number):
        mean = (weights * (y.double() - target.centre) / target.scale).sum()
        return mean[None] / (1 + NO_VOTE)
    if isinstance(target, YesNo):
        known = ~y.isnan()
        yes = (weights[:, None] * (y.nan_to_num() * known)).sum(dim=0) + NO_VOTE / 2
        no = (weights[:, None] * ((1 - y.nan_to_num()) * known)).sum(dim=0) + NO_VOTE / 2
        return (yes / no).log()
    soft = y if y.dim() == 2 else nn.functional.one_hot(y, target.table_rows)
    votes = (weights[:, None] * soft).sum(dim=0)
    classes = len(votes)
    said = ((votes + NO_VOTE / classes) / (1 + NO_VOTE)).log()
    return said if target.outputs > 1 else said[1:] - said[:1]


@pytest.mark.parametrize(
    "target",
    [Classes(3), Classes(1), SoftClasses(3), YesNo(2), Number(centre=5.0, scale=2.0)],
    ids=lambda target: f"{target.kind} {target.outputs}",
)
@torch.no_grad()
def test_a_prediction_is_the_head_and_the_vote_of_the_formula(target):
    model, x, y = model_of(target)
    model.eval()
    queries = model.backbone(torch.randn(5, 3))
    logits = model.classify(queries)
    stored = model.backbone(x)
    for row, query in enumerate(queries):
        weights = shares(model.vote, query, stored)
        model.vote.float()
        vote = answer(target, weights, y)
        wanted = model.head(query) + model.vote.gate * vote
        torch.testing.assert_close(logits[row], wanted.float(), atol=1e-4, rtol=1e-4)


@given(seed=st.integers(0, 50), batch=st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_no_row_meets_its_own_copy(seed, batch):
    """What a row's own stored label says changes nothing of its own answer in training."""
    model, x, _ = model_of(Classes(3), seed=seed)
    model.train()
    ids = torch.randperm(12)[:batch]
    with torch.no_grad():
        before = model(x[ids], ids=ids)
        for row, place in enumerate(model.real.queue.find(ids).tolist()):
            was = int(model.real.queue.labels[place])
            model.real.queue.labels[place] = (was + 1) % 3
            torch.testing.assert_close(model(x[ids], ids=ids)[row], before[row])
            model.real.queue.labels[place] = was


def test_a_row_that_may_meet_itself_is_told_its_own_label():
    model, x, y = model_of(Classes(3), leave_self_out=False)
    with torch.no_grad():
        model.vote.log_sharpness.fill_(4.0)
        model.head.weight.zero_(), model.head.bias.zero_()
        assert torch.equal(model.train()(x).argmax(dim=1), y)


@torch.no_grad()
def test_rows_of_the_batch_stand_for_their_stored_copies():
    model, x, y = model_of(Classes(3))
    ids = torch.arange(4)
    fresh = model.backbone(x[:4])
    model.real.queue.features[:4] = 99.0  # stale: never looked at while the batch is there
    trained = model.train()(x[:4], ids=ids)
    model.real.queue.features[:4] = fresh
    for row in range(4):
        others = torch.arange(12) != row
        weights = shares(model.vote, fresh[row], model.real.queue.features[:12][others])
        model.vote.float()
        wanted = model.head(fresh[row]) + answer(model.target, weights, y[others])
        torch.testing.assert_close(trained[row], wanted.float(), atol=1e-4, rtol=1e-4)


def test_training_without_ids_is_refused_and_answering_is_not():
    model, x, y = model_of(Classes(3))
    model.eval()(x)
    model.remember(x[:1], y[:1])
    model.train()
    with pytest.raises(ValueError, match=r"ids must be given in training.*model\(x, ids=ids\)"):
        model(x)
    with pytest.raises(ValueError, match=r"ids must be given in training.*leave_self_out=False"):
        model.remember(x, y)
    with pytest.raises(ValueError, match=r"ids must have shape \(12,\), got \(3,\)"):
        model(x, ids=torch.arange(3))


def test_an_empty_memory_leaves_the_plain_backbone():
    model = HMA(nn.Linear(3, WIDTH), 3, feature_dim=WIDTH)
    x = torch.randn(4, 3)
    plain = model.head(model.backbone(x)).softmax(dim=1)
    torch.testing.assert_close(model(x, ids=torch.arange(4)).softmax(dim=1), plain)
    torch.testing.assert_close(model.eval()(x).softmax(dim=1), plain)
    assert str(hma.explain(model, x[:1])).endswith("from itself 100%")


def test_a_gate_starts_at_the_plain_backbone_and_a_vote_alone_has_no_head():
    gated, x, _ = model_of(Classes(3), vote="gated")
    torch.testing.assert_close(gated.eval()(x), gated.head(gated.backbone(x)))
    alone, x, y = model_of(Classes(3), vote="alone")
    ids = torch.arange(12)
    nn.functional.cross_entropy(alone(x, ids=ids), y).backward()
    assert alone.head.weight.grad is None
    assert alone.vote.to_keys.weight.grad.abs().sum() > 0
    assert not alone.head.weight.any()


def test_a_class_never_trained_is_predicted_once_it_is_taught():
    model, x, _ = model_of(Classes(3), vote="alone")
    model.eval().reset_memory()
    model.remember(x[:4], torch.tensor([0, 1, 0, 1]))
    new = torch.full((1, 3), 7.0)
    assert int(model(new).argmax()) != 2
    model.remember(new, torch.tensor([2]))
    with torch.no_grad():
        model.vote.log_sharpness.fill_(2.0)
    assert int(model(new).argmax()) == 2


def test_shares_of_rows_sum_to_one_and_are_the_shares_of_the_vote():
    model, _, _ = model_of(Classes(3), slots_per_class=2)
    queries = torch.randn(4, 3)
    found = hma.explain(model, queries)
    torch.testing.assert_close(found.queue.sum(1) + found.slots.sum(1), torch.ones(4))
    assert found.slots.shape == (4, 6)
    votes = found.by_class + NO_VOTE / 3
    with torch.no_grad():
        head = model.head(model.backbone(queries))
    wanted = (head + votes.log()).softmax(dim=1)
    torch.testing.assert_close(found.probabilities, wanted)


@torch.no_grad()
def test_leaving_a_row_out_is_forgetting_it():
    model, _, _ = model_of(Classes(3))
    query = torch.randn(1, 3)
    found = hma.contributions(model.eval(), query)
    with_it = model(query).softmax(dim=1)[0, found.output]
    assert model.forget(torch.tensor([5])) == 1
    without = model(query).softmax(dim=1)[0, found.output]
    torch.testing.assert_close(found.queue[5], with_it - without, atol=1e-5, rtol=1e-4)


def test_reading_the_best_rows_is_reading_all_where_they_are_all():
    model, _, _ = model_of(Classes(3))
    x = torch.randn(4, 3)
    whole = model.eval()(x)
    model.real.nearest = BestRows(k=12, block=5)
    torch.testing.assert_close(model(x), whole)


@pytest.mark.parametrize("vote", ["mixed", "added"])
@torch.no_grad()
def test_a_vote_compiles_to_one_graph(vote):
    config = HMAConfig(vote=vote, key_dim=4, slots_per_class=1)
    model = HMA(nn.Linear(3, WIDTH), 3, config, feature_dim=WIDTH).eval()
    model.remember(torch.randn(5, 3), torch.arange(5) % 3)
    if model.vote.share is not None:
        model.vote.share.fill_(0.5)
    x = torch.randn(4, 3)
    wanted = model(x)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), wanted)


def test_candidates_are_drawn_in_training_and_all_rows_are_read_after():
    model, x, _ = model_of(Classes(3), candidates=2)
    ids = torch.arange(2)
    drawn = {tuple(model.train()(x[:2], ids=ids)[0].tolist()) for _ in range(8)}
    assert len(drawn) > 1
    model.eval()
    assert torch.equal(model(x), model(x))
    everything = replace(model.config, candidates=None)
    whole = HMA(model.backbone, config=everything, target=model.target, feature_dim=WIDTH)
    whole.load_state_dict(model.state_dict())
    torch.testing.assert_close(whole.eval()(x), model(x))


def test_refresh_writes_rows_as_the_backbone_gives_them_now():
    model, x, y = model_of(Classes(3))
    with torch.no_grad():
        model.backbone.weight.mul_(2.0)
    model.refresh([(x[:5], y[:5], torch.arange(5)), (x[5:], y[5:], torch.arange(5, 12))])
    torch.testing.assert_close(model.memory_state().features, model.backbone(x).detach())
    assert model.memory_state().ids.tolist() == list(range(12))


def test_a_sharpness_that_runs_away_is_bounded_and_finite():
    model, x, _ = model_of(Classes(3))
    with torch.no_grad():
        model.vote.log_sharpness.fill_(1e6)
    assert model.eval()(x * 1e4).isfinite().all()
    assert float(model.vote.sharpness.detach()) == pytest.approx(math.exp(4.0) / 2)


def test_a_saved_model_answers_as_before(tmp_path):
    model, x, _ = model_of(Classes(3), slots_per_class=1)
    hma.save(model.eval(), tmp_path)
    again = hma.load(tmp_path, nn.Linear(3, WIDTH))
    assert torch.equal(again(x), model(x))
    assert again.config == replace(model.config, context="alone")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"context": "anchors"}, "answers each row alone and embeds no labels"),
        ({"readout": "label"}, "answers each row alone and embeds no labels"),
        ({"queue_size": 0}, "nobody votes"),
        ({"candidates": 0}, "candidates must be at least 1, got 0"),
        ({"key_dim": 0}, "key_dim must be at least 1, got 0"),
        ({"vote": "alnoe"}, "did you mean 'alone'"),
    ],
)
def test_what_cannot_vote_is_said(fields, message):
    with pytest.raises(ConfigError, match=message):
        HMAConfig(**fields)
