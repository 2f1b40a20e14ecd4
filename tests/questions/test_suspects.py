"""The leave-one-out vote against loops in float64; what is suspicious and what cannot be known."""

import math
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch import nn

import hma
from hma import HMA, HMAConfig, VoteConfig, VotingMemory, suspects
from hma.errors import UserError
from hma.options.config import ConfigError
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.targets.target import NO_VOTE
from hma.vote.search import BestRows

NAN = math.nan
ROWS = 9
FEATURES = 4
LABELS = {
    "classes": (Classes(3), torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1])),
    "one logit": (Classes(1), torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 1])),
    "soft": (SoftClasses(2), torch.tensor([[0.25, 0.75], [1, 0], [0.5, 0.5]] * 3)),
    "yes/no": (YesNo(2), torch.tensor([[1.0, NAN], [0, 1], [0, 0], [1, 1], [NAN, 0]] * 2)[:ROWS]),
    "number": (Number(10.0, 2.0), torch.tensor([8.0, 9, 10, 11, 12, 13, 14, 30, 9])),
}


def filled(target, y, x=None, **config):
    torch.manual_seed(0)
    config = VoteConfig(**{"key_dim": 3, "slots_per_class": 2} | config)
    model = VotingMemory(nn.Identity(), target=target, config=config, feature_dim=FEATURES)
    x = torch.randn(len(y), FEATURES) if x is None else x
    model.eval().remember(x, y, ids=100 + torch.arange(len(y)))
    return model


def weights_by_hand(model, own):
    """Return what each stored row counts for row ``own``, itself left out, in float64."""
    vote, rows = model.vote, model.real.queue.rows()
    keys = []
    for features in rows.features.double():
        centred = features - features.mean()
        normal = centred / (centred.square().mean() + vote.norm.eps).sqrt()
        normal = normal * vote.norm.weight.double() + vote.norm.bias.double()
        keys.append(vote.to_keys.weight.double() @ normal + vote.to_keys.bias.double())
    sharp = math.exp(float(vote.log_sharpness)) / math.sqrt(len(keys[0]))
    near = [
        0.0 if j == own else math.exp(-sharp * float((keys[own] - key).square().sum()))
        for j, key in enumerate(keys)
    ]
    return [one / sum(near) for one in near]


def share_of(weights, chosen, options):
    """Return the part of the vote for what ``chosen`` marks among ``options`` answers."""
    known = [(w, c) for w, c in zip(weights, chosen, strict=True) if c is not None]
    votes = sum(w * c for w, c in known)
    return (votes + NO_VOTE / options) / (sum(w for w, _ in known) + NO_VOTE)


def score_by_hand(kind, labels, weights, own):
    if kind == "classes" or kind == "one logit":
        options = 3 if kind == "classes" else 2
        return 1 - share_of(weights, [float(y == labels[own]) for y in labels], options)
    if kind == "soft":
        shares = [share_of(weights, [y[c] for y in labels], 2) for c in range(2)]
        return sum(abs(s - y) for s, y in zip(shares, labels[own], strict=True)) / 2
    doubts = []
    for label in range(2):
        mine = labels[own][label]
        if not math.isnan(mine):
            others = [None if math.isnan(y[label]) else float(y[label] == mine) for y in labels]
            doubts.append(1 - share_of(weights, others, 2))
    return max(doubts)


@pytest.mark.parametrize("kind", ["classes", "one logit", "soft", "yes/no"])
@pytest.mark.parametrize("at_once", [1, 200, 2**22])
def test_a_score_is_what_the_vote_of_the_others_denies_the_label(kind, at_once, monkeypatch):
    monkeypatch.setattr(import_module("hma.questions.suspects"), "MOST_DISTANCES", at_once)
    target, y = LABELS[kind]
    model = filled(target, y)
    expected = [score_by_hand(kind, y.tolist(), weights_by_hand(model, i), i) for i in range(ROWS)]
    found = suspects(model)
    torch.testing.assert_close(found.score.double(), torch.tensor(expected).double())
    assert found.ids.tolist() == list(range(100, 100 + ROWS))
    torch.testing.assert_close(found.given, y, equal_nan=True)


def test_a_number_is_judged_by_its_difference_in_units_of_what_is_usual():
    target, y = LABELS["number"]
    model = filled(target, y)
    voted = []
    for own in range(ROWS):
        weights = weights_by_hand(model, own)
        mean = sum(w * (v - 10.0) / 2.0 for w, v in zip(weights, y.tolist(), strict=True))
        voted.append(10.0 + 2.0 * mean / (sum(weights) + NO_VOTE))
    apart = [abs(v - label) for v, label in zip(voted, y.tolist(), strict=True)]
    usual = sorted(apart)[ROWS // 2] / 0.6745
    found = suspects(model)
    torch.testing.assert_close(found.voted, torch.tensor(voted))
    torch.testing.assert_close(found.score, torch.tensor([one / usual for one in apart]))
    assert found.order[0] == 7


def test_numbers_that_all_agree_are_not_suspicious():
    found = suspects(filled(Number(5.0, 2.0), torch.full((6,), 5.0)))
    assert found.score.tolist() == [0.0] * 6


@pytest.mark.parametrize("kind", LABELS)
def test_a_row_never_votes_for_itself(kind):
    target, y = LABELS[kind]
    model = filled(target, y)
    before = suspects(model).expected[3]
    model.real.queue.labels[3] = model.real.queue.labels[4]
    assert torch.equal(suspects(model).expected[3], before)


def test_a_sample_that_was_written_twice_is_one_row():
    target, y = LABELS["classes"]
    model, again = filled(target, y), filled(target, y)
    again.remember(model.real.queue.features[2:3], y[2:3], ids=torch.tensor([102]))
    assert torch.equal(suspects(model).score, suspects(again).score)


def test_rows_without_ids_are_judged_too():
    target, y = LABELS["classes"]
    model, unnamed = filled(target, y), filled(target, y[:0])
    unnamed.remember(model.real.queue.rows().features, y)
    torch.testing.assert_close(suspects(unnamed).score, suspects(model).score)
    assert suspects(unnamed).ids.tolist() == [-1] * ROWS


def clusters(count=8):
    torch.manual_seed(1)
    centres = torch.tensor([[3.0, 0, 0, -3], [-3, 0, 3, 0]])
    y = torch.arange(count * 2) % 2
    return centres[y] + 0.2 * torch.randn(count * 2, FEATURES), y


@pytest.mark.parametrize("kind", ["classes", "soft", "yes/no", "number"])
def test_a_label_that_was_flipped_in_a_clear_cluster_comes_first(kind):
    x, y = clusters()
    y[5] = 1 - y[5]
    made = {
        "classes": (Classes(2), y),
        "soft": (SoftClasses(2), torch.stack([1 - y, y], dim=1).float()),
        "yes/no": (YesNo(2), torch.stack([y, torch.ones_like(y)], dim=1).float()),
        "number": (Number(), y.float()),
    }
    target, labels = made[kind]
    model = filled(target, labels, x)
    model.vote.log_sharpness.data.fill_(2.0)
    found = suspects(model)
    assert found.order[0] == 5
    assert found.score[5] > 0.9
    assert all(y[row] != y[5] for row in found.against[5].tolist())
    assert found.shares[5, 0] >= found.shares[5, 1] > 0
    calm = found.order[-1]
    assert (found.against[calm] == -1).sum() + (found.shares[calm] < 0.1).sum() >= 3


def test_what_no_other_row_has_is_not_judged_and_comes_last():
    y = torch.tensor([0, 0, 1, 2, 1, 0])
    found = suspects(filled(Classes(3), y))
    assert found.judged.tolist() == [True, True, True, False, True, True]
    assert found.order[-1] == 3
    several = torch.tensor([[0.0, 0], [0, 1], [0, NAN], [0, 1], [NAN, NAN], [1, 1]])
    found = suspects(filled(YesNo(2), several))
    first = torch.cat([several[:, :1], torch.full((6, 1), NAN)], dim=1)
    assert found.judged.tolist() == [True, True, True, True, False, True]
    # the only no to the second label, and the only yes to the first, are not held against a row
    assert found.score[0] == suspects(filled(YesNo(2), first)).score[0]
    assert found.score[5] == 1 - found.expected[5, 1]


def test_of_equal_scores_the_row_that_came_first_comes_first():
    score = torch.tensor([0.5, 0.5, NAN, 0.9, 0.5, 0.0, NAN, 0.0, 1.0])
    found = replace(suspects(filled(*LABELS["classes"])), score=score)
    assert found.order.tolist() == [8, 3, 0, 1, 4, 5, 7, 2, 6]


def test_a_bounded_memory_judges_what_it_holds_in_the_order_it_came():
    target, y = LABELS["classes"]
    x = torch.randn(ROWS, FEATURES)
    bounded = filled(target, y, x, memory_size=5)
    found, expected = suspects(bounded), suspects(filled(target, y[4:], x[4:]))
    assert found.ids.tolist() == list(range(104, 109))
    torch.testing.assert_close(found.score, expected.score, equal_nan=True)
    assert torch.equal(found.against, expected.against)


def test_the_nearest_rows_alone_vote_where_they_are_chosen():
    target, y = LABELS["classes"]
    model = filled(target, y)
    whole = suspects(model)
    model.real.nearest = BestRows(k=ROWS)
    torch.testing.assert_close(suspects(model).score, whole.score)
    model.real.nearest = BestRows(k=2)  # itself and one more
    one = suspects(model)
    for own in range(ROWS):
        weights = weights_by_hand(model, own)
        assert one.voted[own] == y[weights.index(max(weights))]


def test_asking_changes_nothing():
    target, y = LABELS["classes"]
    model = filled(target, y).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    suspects(model)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_memories_that_cannot_answer_say_so_in_a_line():
    empty = filled(*LABELS["classes"])
    empty.reset_memory()
    paper = HMA(nn.Identity(), 3, HMAConfig(), feature_dim=FEATURES)
    slots = filled(*LABELS["classes"], memory_size=0)
    for model, error, said in [
        (empty, UserError, "memory of 2 or more rows, got 0; remember"),
        (paper, ConfigError, r"rows vote, one for each sample, got HMA; take hma\.VotingMemory"),
        (slots, ConfigError, r"suspects needs stored rows, got memory_size=0; take VoteConfig"),
    ]:
        with pytest.raises(error, match=said) as caught:
            hma.suspects(model)
        assert "\n" not in str(caught.value)
