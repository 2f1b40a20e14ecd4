"""Rows that are alike, alone, of no weight or no number, and settings at the end of their range."""

import math

import pytest
import torch
from torch import nn

import hma
from hma import VoteConfig, VotingMemory
from hma.memory import blocks
from hma.memory.rows import EncodedRows
from hma.targets import Classes, Number
from hma.vote import near, solved, voting_memory
from hma.vote.solved import SolvedVote

WIDTH = 3


def there(count):
    return torch.ones(count, dtype=torch.bool)


@pytest.fixture(params=["all rows", "near rows"])
def solver(request, monkeypatch):
    if request.param == "near rows":
        monkeypatch.setattr(solved, "MOST_SOLVED", 0)


@pytest.mark.parametrize("penalty", [1e-6, 0.1])
def test_copies_with_other_labels_say_how_often_each_comes(solver, penalty):
    """Of ``n`` copies far from all else ``K`` is of ones: ``n / (n + lambda) (mean - prior)``."""
    vote = SolvedVote(Classes(3), "keys", WIDTH).double()
    view = torch.zeros(16, WIDTH).double()
    view[10:] = 1000.0
    labels = torch.tensor([0] * 7 + [1] * 3 + [2] * 6)
    vote.penalty.fill_(penalty)
    vote.prior.copy_(torch.tensor([7, 3, 6]) / 16)
    rows = vote.rows(view, labels, there(16))
    mean = torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.0, 1.0]]).double()
    shrunk = torch.tensor([[10.0], [6.0]]).double() / (torch.tensor([[10.0], [6.0]]) + penalty)
    expected = shrunk * (mean - vote.prior)
    torch.testing.assert_close(rows.scores(view[[0, -1]]), expected, rtol=1e-6, atol=1e-7)


def test_of_copies_with_other_labels_a_kernel_can_be_chosen():
    vote = SolvedVote(Classes(2), "view", WIDTH).double()
    view, labels = torch.zeros(40, WIDTH).double(), (torch.arange(40) % 4 == 0).long()
    vote.choose_kernel(view, labels)
    rows = vote.rows(view, labels, there(40))
    said = vote.answer(view[:1], rows).softmax(dim=1)
    assert float(said[0, 1]) < 0.5
    told = vote.leave_one_out(rows, labels, torch.arange(40)).softmax(dim=1)
    assert torch.isfinite(told).all()


@pytest.mark.parametrize("count", [1, 12])
def test_rows_of_one_class_answer_that_class(solver, count):
    vote = SolvedVote(Classes(3), "view", WIDTH).double()
    view, labels = torch.randn(count, WIDTH).double(), torch.ones(count).long()
    vote.choose_kernel(view, labels)
    rows = vote.rows(view, labels, there(count))
    sure = torch.tensor([[0.0, 1.0, 0.0]]).double()
    for said in (
        vote.answer(10 * torch.randn(4, WIDTH).double(), rows),
        vote.leave_one_out(rows, labels, torch.arange(count)),
    ):
        torch.testing.assert_close(said.softmax(dim=1), sure.expand(len(said), 3))


def test_a_column_that_is_the_same_everywhere_says_nothing():
    torch.manual_seed(0)
    view, labels = torch.randn(40, WIDTH).double(), torch.arange(40) % 2
    wider = torch.cat([view, torch.full((40, 1), 7.0).double()], dim=1)
    said = []
    for rows in (view, wider):
        vote = SolvedVote(Classes(2), "view", rows.shape[1]).double()
        vote.choose_kernel(rows, labels)
        said.append(vote.answer(rows[:5], vote.rows(rows, labels, there(40))))
    torch.testing.assert_close(*said)


def test_the_only_row_of_a_class_is_answered_where_it_lies_and_not_by_others(solver):
    torch.manual_seed(0)
    view, labels = torch.randn(31, WIDTH).double(), torch.arange(31) % 2
    view[30], labels[30] = 8.0, 2
    vote = SolvedVote(Classes(3), "view", WIDTH).double()
    vote.choose_kernel(view, labels)
    vote.gamma.fill_(1.0)
    vote.penalty.fill_(0.1)
    vote.temperature.fill_(4.0)
    rows = vote.rows(view, labels, there(31))
    assert int(vote.answer(view[30:], rows).argmax()) == 2
    told = vote.leave_one_out(rows, labels, torch.tensor([30])).softmax(dim=1)
    alone = vote.target.from_scores(vote.prior[None], vote.temperature, rows.known).softmax(dim=1)
    torch.testing.assert_close(told, alone)  # it lies far from all: they say nothing of it


def test_rows_of_no_weight_are_as_if_they_were_not_there(solver):
    torch.manual_seed(0)
    view, labels = torch.randn(40, WIDTH).double(), torch.randint(2, (40,))
    weight = (torch.arange(40) < 25).float()
    vote = SolvedVote(Classes(2), "keys", WIDTH).double()
    vote.choose_kernel(view, labels, weight)
    kept = weight > 0
    torch.testing.assert_close(
        vote.answer(view[:6], vote.rows(view, labels, there(40), weight)),
        vote.answer(view[:6], vote.rows(view[kept], labels[kept], there(25))),
        rtol=1e-5,
        atol=1e-5,
    )


def test_weights_that_are_all_zero_weigh_alike():
    torch.manual_seed(0)
    view, labels = torch.randn(40, WIDTH).double(), torch.randint(2, (40,))
    vote = SolvedVote(Classes(2), "keys", WIDTH).double()
    chosen = vote.choose_kernel(view, labels, torch.zeros(40))
    assert all(math.isfinite(value) for value in chosen)
    torch.testing.assert_close(vote.prior, (torch.bincount(labels) / 40).double())


def test_penalties_are_tried_as_long_as_the_last_is_the_best():
    torch.manual_seed(0)
    view = torch.randn(150, WIDTH).double()
    vote = SolvedVote(Number(centre=0.0, scale=1.0), "view", WIDTH).double()
    exact = vote.choose_kernel(view, view[:, 0].sin()).penalty
    noise = vote.choose_kernel(view, torch.randn(150)).penalty
    assert exact < min(solved.PENALTIES) / 3
    assert noise > max(solved.PENALTIES) * 3


class Broken(nn.Module):
    """A view in which one input has no number."""

    feature_dim = WIDTH

    def forward(self, x):
        return torch.where(x[:, :1] > 90, torch.nan, x)


def test_a_row_without_a_number_in_one_view_is_left_out_of_all():
    torch.manual_seed(0)
    x, y = torch.randn(30, WIDTH), torch.arange(30) % 2
    x[4, 0] = 99.0
    model = VotingMemory(
        nn.Linear(WIDTH, 5), 2, VoteConfig(key_dim=2), feature_dim=5, key_encoder=Broken()
    )
    with pytest.warns(UserWarning, match="1 of 30 rows hold NaN or infinity in their features"):
        model.learn_memory([(x, y)], held_out=[(x[:10], y[:10])])
    model.eval()
    assert 4 not in model.memory_state().ids.tolist()
    with torch.no_grad():
        assert torch.isfinite(model(x[torch.arange(30) != 4])).all()


def test_a_query_without_a_number_spoils_no_other(solver):
    torch.manual_seed(0)
    view, labels = torch.randn(20, WIDTH).double(), torch.arange(20) % 2
    vote = SolvedVote(Classes(2), "keys", WIDTH).double()
    rows = vote.rows(view, labels, there(20))
    queries = torch.randn(3, WIDTH).double()
    expected = rows.scores(queries)
    queries[1, 0] = torch.nan
    said = rows.scores(queries)
    assert said[1].isnan().all()
    torch.testing.assert_close(said[[0, 2]], expected[[0, 2]])


def known_rows(count):
    torch.manual_seed(0)
    model = VotingMemory(nn.Identity(), 2, VoteConfig(key_dim=2), feature_dim=WIDTH).eval()
    for vote in model.solved:
        vote.share.fill_(0.4)
    model.remember(torch.randn(count, WIDTH), torch.arange(count) % 2, ids=torch.arange(count))
    return model


@torch.no_grad()
def test_one_line_says_when_rows_are_no_longer_solved_for_together(monkeypatch):
    monkeypatch.setattr(solved, "MOST_SOLVED", 20)
    model, new = known_rows(20), torch.randn(4, WIDTH)
    before = model(new)
    model.remember(torch.randn(1, WIDTH), torch.tensor([0]), ids=torch.tensor([50]))
    line = "up to 20 rows are solved for together; there are 21 now, so for each query the 100"
    with pytest.warns(UserWarning, match=line):
        assert not torch.equal(model(new), before)
    model.forget(torch.tensor([50]))
    torch.testing.assert_close(model(new), before)


@torch.no_grad()
def test_one_line_says_when_rows_are_too_many_to_be_solved_for(monkeypatch):
    monkeypatch.setattr(solved, "MOST_SEARCHED", 20)
    model = known_rows(21)
    with pytest.warns(UserWarning, match="21 rows are too many for solved votes, which take up to"):
        model(torch.randn(4, WIDTH))
    model.reproject()
    assert model.memories().solved == (None, None)  # and said no more


@torch.no_grad()
def test_a_memory_in_blocks_is_solved_for_as_one_in_a_piece(monkeypatch):
    monkeypatch.setattr(solved, "MOST_SOLVED", 0)
    monkeypatch.setattr(near, "NEAREST", 9)
    model, new = known_rows(40), torch.randn(4, WIDTH)
    expected, exact = model(new), hma.explain(model, new).exact.from_queue
    monkeypatch.setattr(blocks, "AT_ONCE", 7)
    model.reproject()
    torch.testing.assert_close(model(new), expected)
    torch.testing.assert_close(hma.explain(model, new).exact.from_queue, exact)


def test_held_out_rows_weigh_votes_of_near_rows(monkeypatch):
    monkeypatch.setattr(solved, "MOST_SOLVED", 50)
    monkeypatch.setattr(voting_memory, "MOST_SOLVED", 50)
    torch.manual_seed(0)
    x = torch.randn(200, WIDTH)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = VotingMemory(nn.Identity(), 2, VoteConfig(), feature_dim=WIDTH).eval()
    rows = EncodedRows(x[:140], y[:140], torch.arange(140), None)
    model.after_training(lambda: rows, lambda: EncodedRows(x[140:], y[140:], None, None), seed=0)
    assert sum(float(vote.share) for vote in model.solved) > 0.3
    assert "100 near each query together" in model.describe()
