"""Unfamiliarity against its formula written out, and what it must mean."""

import math

import pytest
import torch
from torch import nn

import hma
from hma import HMAConfig, VoteConfig, VotingMemory
from hma.options.config import ConfigError
from hma.questions.unfamiliar import doubt, energy, unfamiliarity
from hma.vote.search import BestRows

CLASSES, WIDTH = 3, 5


def model_with_rows(rows=7, **options):
    config = VoteConfig(**{"key_dim": 6} | options)
    model = VotingMemory(nn.Linear(4, WIDTH), CLASSES, config, feature_dim=WIDTH)
    model.double().eval()
    if rows:
        model.remember(torch.randn(rows, 4).double(), torch.arange(rows) % CLASSES)
    return model


@torch.no_grad()
def by_hand(model, x, nearest=None):
    """Loop over queries and rows; the distances of the nearest ones alone, if so many are given."""
    model.eval()
    vote = model.vote
    stored = [*vote.keys(model.memory_state().features)]
    if model.config.slots_per_class:
        stored += [*vote.keys(model.synthetic.slots)]
    found = []
    for key in vote.keys(model.backbone(x)):
        near = sorted(sum((a - b) ** 2 for a, b in zip(key, row, strict=True)) for row in stored)
        found.append(-math.log(sum(math.exp(-float(vote.sharpness * d)) for d in near[:nearest])))
    return torch.tensor(found, dtype=torch.double)


@pytest.mark.parametrize("slots", [0, 2])
def test_it_is_minus_the_log_of_the_summed_nearness_of_all_rows_that_vote(slots):
    model, x = model_with_rows(slots_per_class=slots), torch.randn(3, 4).double()
    torch.testing.assert_close(unfamiliarity(model, x), by_hand(model, x))


def test_rows_that_are_not_read_do_not_make_a_query_familiar():
    model, x = model_with_rows(), torch.randn(3, 4).double()
    model.real.nearest = BestRows(k=2)
    torch.testing.assert_close(unfamiliarity(model, x), by_hand(model, x, nearest=2))


def test_features_may_be_given_and_the_mode_is_kept():
    model, x = model_with_rows(key_dropout=0.5).train(), torch.randn(3, 4).double()
    given = unfamiliarity(model, features=model.backbone(x))
    assert model.training
    torch.testing.assert_close(given, by_hand(model, x))


def test_it_is_the_same_in_parts(monkeypatch):
    model, x = model_with_rows(), torch.randn(5, 4).double()
    whole = unfamiliarity(model, x)
    monkeypatch.setattr("hma.vote.voting_memory.MOST_DISTANCES", 2 * model.real.queue.size)
    torch.testing.assert_close(unfamiliarity(model, x), whole)


def test_a_row_becomes_familiar_when_it_is_remembered_and_strange_when_forgotten():
    model, x = model_with_rows(), torch.randn(1, 4).double()
    before = unfamiliarity(model, x)
    model.remember(x, torch.tensor([0]), ids=torch.tensor([99]))
    assert unfamiliarity(model, x) < before
    model.forget(torch.tensor([99]))
    torch.testing.assert_close(unfamiliarity(model, x), before, rtol=0, atol=0)


def test_an_empty_memory_knows_nothing():
    assert unfamiliarity(model_with_rows(rows=0), torch.randn(2, 4).double()).tolist() == [
        math.inf,
        math.inf,
    ]


@torch.no_grad()
def test_far_rows_are_unfamiliar_where_the_vote_on_them_is_sure():
    model = VotingMemory(nn.Identity(), 2, VoteConfig(key_dim=2), feature_dim=2).eval()
    model.vote.norm = nn.Identity()  # so that rows may lie anywhere
    model.vote.to_keys.weight.copy_(torch.eye(2)), model.vote.to_keys.bias.zero_()
    model.remember(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    asked = torch.tensor([[0.5, 0.1], [30.0, 0.0]])  # between both; far away, beyond the second
    sure = model.trace(asked).real.memory[0].amax(dim=1)
    assert sure[1] > 0.999 > 0.6 > sure[0]
    near, far = unfamiliarity(model, asked)
    assert far > near + 100


def test_a_memory_that_attends_has_no_distance():
    model = hma.HMA(nn.Linear(4, 8), 3, HMAConfig(queue_size=4, num_heads=2), feature_dim=8)
    with pytest.raises(ConfigError, match=r"unfamiliarity needs .* got HMA; take hma\.VotingMem"):
        hma.unfamiliarity(model, torch.randn(2, 4))


def test_the_rivals_are_what_they_are_called():
    logits = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]])
    expected = [-math.log(math.e + math.e**2 + math.e**4), -math.log(3)]
    torch.testing.assert_close(energy(logits), torch.tensor(expected))
    torch.testing.assert_close(doubt(logits.softmax(1))[1], torch.tensor(2 / 3))
    torch.testing.assert_close(energy(logits.log_softmax(1)), torch.zeros(2))
