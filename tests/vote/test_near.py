"""Solved votes of many rows against a loop over queries in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

import hma
from hma import VoteConfig, VotingMemory
from hma.targets import Classes, YesNo
from hma.vote import near, solved
from hma.vote.near import NearRows
from hma.vote.solved import SolvedVote

WIDTH, ROWS, NEAREST = 4, 40, 7


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Let 7 rows be solved for with each query, of any number of rows."""
    monkeypatch.setattr(near, "NEAREST", NEAREST)
    monkeypatch.setattr(solved, "MOST_SOLVED", 0)


def made(target=None, rows=ROWS):
    torch.manual_seed(0)
    target = target or Classes(3)
    vote = SolvedVote(target, "view", WIDTH).double()
    view = torch.randn(rows, WIDTH).double()
    labels = torch.randint(3, (rows,))
    if isinstance(target, YesNo):
        labels = torch.randint(2, (rows, 2)).double()
        labels[::3, 0] = float("nan")
    vote.gamma.fill_(0.2)
    vote.penalty.fill_(0.1)
    vote.prior.copy_(target.wanted(labels).nanmean(dim=0))
    return vote, view, labels, torch.ones(rows, dtype=torch.bool)


def by_hand(vote, view, labels, query, kept):
    """Solve, an output at a time, for those of the nearest rows that have a label."""
    rows, wanted = view.numpy()[kept], (vote.target.wanted(labels) - vote.prior).numpy()[kept]
    apart = ((rows - query.numpy()) ** 2).sum(axis=1)
    nearest = np.argsort(apart)[:NEAREST]
    found = np.zeros(wanted.shape[1])
    for output in range(wanted.shape[1]):
        some = nearest[~np.isnan(wanted[nearest, output])]
        between = ((rows[some][:, None] - rows[some]) ** 2).sum(axis=-1)
        said = np.linalg.solve(
            np.exp(-0.2 * between) + 0.1 * np.eye(len(some)), wanted[some, output]
        )
        found[output] = np.exp(-0.2 * apart[some]) @ said
    return found


@pytest.mark.parametrize("target", [Classes(3), YesNo(2)], ids=["classes", "gaps"])
@pytest.mark.parametrize("at_once", [2**22, 100])
def test_the_rows_near_a_query_are_solved_for(target, at_once, monkeypatch):
    monkeypatch.setattr(near, "MOST_DISTANCES", at_once)
    vote, view, labels, there = made(target)
    there[5] = False
    rows = vote.rows(view, labels, there)
    assert isinstance(rows, NearRows)
    queries, kept = torch.randn(6, WIDTH).double(), there.numpy()
    expected = [by_hand(vote, view, labels, query, kept) for query in queries]
    np.testing.assert_allclose(rows.scores(queries), np.stack(expected), atol=1e-9)


def test_a_row_that_is_left_out_leaves_its_place_to_another():
    vote, view, labels, there = made()
    rows, own = vote.rows(view, labels, there), torch.tensor([0, 7, 39])
    told = rows.leave_one_out(vote.target.wanted(labels), own)
    for place, row in enumerate(own.tolist()):
        kept = np.arange(ROWS) != row
        np.testing.assert_allclose(
            told[place], by_hand(vote, view, labels, view[row], kept), atol=1e-9
        )


@pytest.mark.parametrize("target", [Classes(3), Classes(1), YesNo(2)], ids=["3", "1", "yes/no"])
def test_parts_of_near_rows_sum_to_the_answer(target):
    torch.manual_seed(0)
    model = VotingMemory(
        nn.Identity(), target=target, config=VoteConfig(key_dim=4), feature_dim=WIDTH
    )
    model = model.double().eval()
    labels = (
        torch.randint(2, (ROWS, 2)).float()
        if isinstance(target, YesNo)
        else torch.arange(ROWS) % max(target.count, 2)
    )
    model.remember(torch.randn(ROWS, WIDTH).double(), labels, ids=torch.arange(ROWS))
    for vote in model.solved:
        vote.gamma.fill_(0.3)
        vote.temperature.fill_(4.0)
        vote.share.fill_(0.4)
    exact = hma.explain(model, torch.randn(3, WIDTH).double()).exact
    for query in range(3):
        each = exact.queue(query)
        assert int((exact.solved[1].row(query).abs().sum(dim=1) > 0).sum()) == NEAREST
        torch.testing.assert_close(
            each.sum(dim=0).float(), exact.from_queue[query].float(), atol=1e-6, rtol=0
        )


def test_the_memory_answers_the_same_after_rows_came_and_went():
    _, view, labels, _ = made(rows=20)
    model = VotingMemory(nn.Identity(), 3, VoteConfig(key_dim=4), feature_dim=WIDTH).double().eval()
    for one in model.solved:
        one.share.fill_(0.4)
    model.remember(view, labels, ids=torch.arange(20))
    new = torch.randn(5, WIDTH).double()
    expected = model(new)
    model.remember(view + 0.1, labels, ids=torch.arange(20, 40))
    assert not torch.allclose(model(new), expected)
    model.forget(torch.arange(20, 40))
    torch.testing.assert_close(model(new), expected)


def test_rows_are_solved_for_near_a_query_up_to_a_number_and_not_at_all_beyond(monkeypatch):
    monkeypatch.setattr(solved, "MOST_SEARCHED", 30)
    vote, view, labels, there = made()
    with pytest.warns(UserWarning, match="40 rows are too many for solved votes, which take up to"):
        assert vote.rows(view, labels, there) is None
    assert isinstance(vote.rows(view[:30], labels[:30], there[:30]), NearRows)
