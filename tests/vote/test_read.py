"""The vote by distance, against the formula written out in float64."""

import math

import pytest
import torch
from torch import nn
from vote_by_hand import TARGETS, WIDTH, answer, labels_of, name_of, shares

import hma
from hma import VoteConfig, VotingMemory
from hma.options.config import ConfigError
from hma.targets import Classes
from hma.targets.target import NO_VOTE
from hma.vote.search import BestRows


def model_of(target, rows=12, share=0.4, **config):
    torch.manual_seed(0)
    config = VoteConfig(**{"key_dim": 4} | config)
    model = VotingMemory(nn.Linear(3, WIDTH), config=config, target=target, feature_dim=WIDTH)
    model.vote.share.fill_(share)
    x = torch.randn(rows, 3)
    y = labels_of(target, rows)
    model.eval().remember(x, y, ids=torch.arange(rows))
    return model, x, y


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("target", TARGETS, ids=name_of)
@torch.no_grad()
def test_an_answer_is_the_mixture_of_head_and_vote(target, share):
    model, x, y = model_of(target, share=share)
    model.double()
    asked, stored = torch.randn(4, 3).double(), model.backbone(x.double())
    model.remember(x.double(), y, ids=torch.arange(12))
    for query, said in zip(model.backbone(asked), model(asked), strict=True):
        voted = answer(target, shares(model.vote, query, stored), y)
        one, other, both = (
            target.expected(z.reshape(1, -1)).double() for z in (model.head(query), voted, said)
        )
        wanted = (1 - share) * one + share * other
        torch.testing.assert_close(both, wanted, atol=1e-6, rtol=1e-6)


def test_an_empty_memory_leaves_the_plain_backbone():
    model = VotingMemory(nn.Linear(3, WIDTH), 3, feature_dim=WIDTH)
    x = torch.randn(4, 3)
    plain = model.head(model.backbone(x)).softmax(dim=1)
    torch.testing.assert_close(model(x).softmax(dim=1), plain)
    torch.testing.assert_close(model.eval()(x).softmax(dim=1), plain)
    assert str(hma.explain(model, x[:1])).endswith("from itself 100%")


def test_a_class_never_trained_is_predicted_once_it_is_taught():
    model, x, _ = model_of(Classes(3), share=1.0)
    model.reset_memory()
    model.remember(x[:4], torch.tensor([0, 1, 0, 1]))
    new = torch.full((1, 3), 7.0)
    assert int(model(new).argmax()) != 2
    model.remember(new, torch.tensor([2]))
    with torch.no_grad():
        model.vote.log_sharpness.fill_(2.0)
    assert int(model(new).argmax()) == 2


def test_shares_of_rows_sum_to_that_of_the_vote_and_make_the_answer():
    model, _, _ = model_of(Classes(3), slots_per_class=2)
    queries = torch.randn(4, 3)
    found = hma.explain(model, queries)
    torch.testing.assert_close(found.queue.sum(1) + found.slots.sum(1), torch.full((4,), 0.4))
    assert found.slots.shape == (4, 6)
    votes = (found.by_class + 0.4 * NO_VOTE / 3) / (1 + NO_VOTE)
    with torch.no_grad():
        head = model.head(model.backbone(queries)).softmax(dim=1)
    torch.testing.assert_close(found.probabilities, 0.6 * head + votes)


@torch.no_grad()
def test_leaving_a_row_out_is_forgetting_it():
    model, _, _ = model_of(Classes(3))
    query = torch.randn(1, 3)
    found = hma.contributions(model, query)
    with_it = model(query).softmax(dim=1)[0, found.output]
    assert model.forget(torch.tensor([5])) == 1
    without = model(query).softmax(dim=1)[0, found.output]
    torch.testing.assert_close(found.queue[5], with_it - without, atol=1e-5, rtol=1e-4)


def test_reading_the_best_rows_is_reading_all_where_they_are_all():
    model, _, _ = model_of(Classes(3))
    x = torch.randn(4, 3)
    whole = model(x)
    model.real.nearest = BestRows(k=12, block=5)
    torch.testing.assert_close(model(x), whole)


@torch.no_grad()
def test_a_vote_compiles_to_one_graph_and_so_does_a_frozen_one():
    model, _, _ = model_of(Classes(3), slots_per_class=1)
    x = torch.randn(4, 3)
    wanted = model(x)
    for _ in range(2):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), wanted)
        model.freeze_memory()
    torch.testing.assert_close(model(x), wanted)


def test_a_sharpness_that_runs_away_is_bounded_and_finite():
    model, x, _ = model_of(Classes(3))
    with torch.no_grad():
        model.vote.log_sharpness.fill_(1e6)
    assert model(x * 1e4).isfinite().all()
    assert float(model.vote.sharpness.detach()) == pytest.approx(math.exp(4.0) / 2)


def test_a_saved_model_answers_as_before(tmp_path):
    model, x, _ = model_of(Classes(3), slots_per_class=1)
    hma.save(model, tmp_path)
    again = hma.load(tmp_path, nn.Linear(3, WIDTH))
    assert torch.equal(again(x), model(x))
    assert again.config == model.config


@pytest.mark.parametrize("context", ["alone", "batch"])
def test_a_row_is_answered_alone_in_every_context_that_it_takes(context):
    model, x, _ = model_of(Classes(3))
    model.context = context
    assert model.context == "alone"
    assert not model.sees_batch
    torch.testing.assert_close(model(x, context=context)[:1], model(x[:1]))


def test_anchors_and_a_context_that_is_none_are_refused():
    model, x, _ = model_of(Classes(3))
    with pytest.raises(ConfigError, match=r"got VotingMemory, which answers each row alone"):
        model.context = "anchors"
    with pytest.raises(ConfigError, match="got 'alnoe'; did you mean 'alone'"):
        model(x, context="alnoe")
