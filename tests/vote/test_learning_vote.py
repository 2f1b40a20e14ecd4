"""The vote while keys learn is the vote: same logits, same gradients."""

import pytest
import torch
from torch.nn.functional import layer_norm, pad
from vote_by_hand import TARGETS, labels_of, name_of

from hma.targets import Classes
from hma.vote.learning import RowsInView, use_the_same_columns
from hma.vote.read import (
    FAR,
    Voters,
    VotingRead,
    count_used_columns,
    count_votes,
    project_normalised,
    squared_lengths,
)

WIDTH, FIRST = 7, 2


def read(target=None, **options):
    vote = VotingRead(target or Classes(3), FIRST + WIDTH, key_dim=4, first=FIRST, **options)
    with torch.no_grad():
        for weight in vote.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return vote.double().requires_grad_()


def gradients(loss, *of):
    return torch.autograd.grad(loss.square().sum(), of)


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
@pytest.mark.parametrize("seen", ["some", "none"])
def test_logits_and_gradients_are_those_of_the_vote(target, seen):
    vote = read(target)
    keys = torch.randn(5, 4).double().requires_grad_()
    far, labels = torch.randn(6, 4).double(), labels_of(target, 11)
    hidden, unseen = torch.rand(6) < 0.5, torch.eye(5) > 0
    if seen == "none":
        hidden, unseen = torch.ones(6) > 0, torch.ones(5, 5) > 0
    groups = [
        vote.at(keys, labels[:5]).hide(unseen),
        vote.at(far, labels[5:]).hide(hidden),
    ]
    ballots = target.ballots(labels).double()
    rows = [
        Voters(keys, ballots[:5], squared_lengths(keys) + FAR * unseen),
        Voters(far, ballots[5:], squared_lengths(far) + FAR * hidden),
    ]
    expected, found = vote(keys, groups, keys)[0], count_votes(vote, keys, rows)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    learned = (keys, vote.log_sharpness)
    for one, other in zip(gradients(found, *learned), gradients(expected, *learned), strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("padded", [0, 3])
def test_keys_of_normalised_rows_without_padding_are_those_of_the_rows(drops, padded):
    vote = read()
    used = layer_norm(torch.randn(6, WIDTH - padded).double(), (WIDTH - padded,))
    features = torch.cat([torch.randn(6, FIRST).double(), pad(used, (0, padded))], dim=1)
    rows = RowsInView(vote, features)
    use_the_same_columns([rows])
    view = rows.at(torch.arange(6))
    assert view.shape == (6, WIDTH - padded)
    torch.testing.assert_close(rows.keys(), vote.keys(features))
    kept = (torch.rand(WIDTH) < 0.7).double() / 0.7 if drops else None
    expected, found = vote.keys(features, kept), project_normalised(vote, view, kept)
    torch.testing.assert_close(found, expected)
    learned = (*vote.norm.parameters(), *vote.to_keys.parameters())
    for one, other in zip(gradients(found, *learned), gradients(expected, *learned), strict=True):
        torch.testing.assert_close(one, other)


def test_a_column_that_one_row_of_any_view_uses_is_no_padding():
    first, second = torch.zeros(5), torch.zeros(5)
    first[0], second[3] = 1.0, 0.5
    assert count_used_columns([first]) == 1
    assert count_used_columns([first, second]) == 4
