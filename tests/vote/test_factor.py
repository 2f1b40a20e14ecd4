"""What is solved for by way of the last solution against what is solved for anew, in float64."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hma import VoteConfig, VotingMemory
from hma.memory.rows import EncodedRows
from hma.targets import Classes, Number, YesNo
from hma.vote import factor
from hma.vote.factor import Factor, fingerprints
from hma.vote.learning import learn_memory

WIDTH, START = 4, 24
TARGETS = {"classes": Classes(3), "gaps": YesNo(3), "number": Number(centre=0.0, scale=1.0)}
QUERIES = torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(9)).double()


def labels_of(target, count, draw):
    if isinstance(target, YesNo):
        labels = torch.randint(2, (count, 3), generator=draw).double()
        return labels.masked_fill(torch.rand(count, 3, generator=draw) < 0.2, float("nan"))
    if isinstance(target, Number):
        return torch.randn(count, generator=draw)
    return torch.randint(3, (count,), generator=draw)


def memory(target, draw):
    model = VotingMemory(
        nn.Identity(), target=target, config=VoteConfig(key_dim=3), feature_dim=WIDTH
    )
    model = model.double().eval()
    x = torch.randn(START, WIDTH, generator=draw).double()
    model.remember(x, labels_of(target, START, draw), ids=torch.arange(START))
    for vote in model.solved:
        vote.gamma.fill_(0.3)
        vote.penalty.fill_(0.01)
        vote.share.fill_(0.4)
    return model


def said(model):
    """Return scores of queries, and what each stored row is told by the others."""
    found = []
    labels = model.real.queue.rows().labels
    for vote, rows in zip(model.solved, model.solve(), strict=True):
        wanted = model.target.wanted(labels).double() - vote.prior
        every = torch.arange(len(labels))
        found.append(rows.scores(vote.place(model.view_of(vote, QUERIES))))
        found += [rows.leave_one_out(wanted, part) for part in (every, every[:2])]
        found += [inverse for _, _, inverse in rows.inverses]
    return found


def afresh(model):
    """The same memory, that has never solved for anything."""
    return copy.deepcopy(model)


def expect_the_same(model):
    for one, other in zip(said(model), said(afresh(model)), strict=True):
        scale = max(1.0, float(other.nan_to_num().abs().max()))
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * scale, equal_nan=True)


EDIT = st.one_of(
    st.tuples(st.just("teach"), st.integers(1, 6)),
    st.tuples(st.just("forget"), st.integers(1, 4)),
    st.tuples(st.just("teach again"), st.integers(1, 3)),
    st.tuples(st.just("copy"), st.integers(1, 3)),
    st.tuples(st.just("weigh"), st.integers(1, 3)),
)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@given(edits=st.lists(EDIT, min_size=1, max_size=8), seed=st.integers(0, 99))
@settings(max_examples=12, deadline=None)
def test_any_sequence_of_edits_equals_a_fresh_solution(target, edits, seed):
    draw = torch.Generator().manual_seed(seed)
    model, next_id = memory(target, draw), START
    expect_the_same(model)
    for verb, count in edits:
        queue = model.real.queue
        held = queue.rows()
        some = torch.randperm(len(held.ids), generator=draw)[:count]
        if verb == "forget" and len(held.ids) > count:
            model.forget(held.ids[some])
        elif verb == "teach again":  # at the same place, with another label
            model.remember(
                held.features[some], labels_of(target, len(some), draw), ids=held.ids[some]
            )
        elif verb == "weigh":
            rows = held.at(some)._replace(weight=torch.rand(len(some), generator=draw) + 0.5)
            queue.write(rows)
        else:
            new = torch.randn(count, WIDTH, generator=draw).double()
            if verb == "copy":
                new = held.features[some]
            ids = torch.arange(next_id, next_id + len(new))
            next_id += len(new)
            model.remember(new, labels_of(target, len(new), draw), ids=ids)
        expect_the_same(model)


def counted(monkeypatch):
    """Return how many rows were factored anew, so far."""
    sizes = []
    whole = factor.cholesky

    def count(keys, *others, **options):
        sizes.append(len(keys))
        return whole(keys, *others, **options)

    monkeypatch.setattr(factor, "cholesky", count)
    return sizes


def test_only_rows_that_came_are_factored(monkeypatch):
    model = memory(Classes(3), torch.Generator().manual_seed(0))
    model(QUERIES)
    sizes = counted(monkeypatch)
    model.remember(torch.randn(2, WIDTH).double(), torch.tensor([0, 1]), ids=torch.tensor([90, 91]))
    model(QUERIES)
    assert sizes == [2, 2]  # of two views
    model.forget(torch.tensor([3, 90]))
    model(QUERIES)
    model.remember(QUERIES[:1], torch.tensor([2]), ids=torch.tensor([5]))
    model(QUERIES)
    model.remember(QUERIES[:1], torch.tensor([1]), ids=torch.tensor([5]))  # another label alone
    model.add_classes(1)
    model(QUERIES)
    assert sizes == [2, 2, 1, 1]
    model.solved[1].gamma.fill_(0.5)
    model(QUERIES)
    assert sizes[4:] == [24]


def test_a_row_forgotten_and_taught_again_is_as_it_was(monkeypatch):
    model = memory(Classes(3), torch.Generator().manual_seed(0))
    row = model.real.queue.rows().at(torch.tensor([4]))
    expected = model(QUERIES)
    sizes = counted(monkeypatch)
    model.forget(torch.tensor([4]))
    assert not torch.allclose(model(QUERIES), expected)
    model.remember(row.features, row.labels, ids=row.ids)
    torch.testing.assert_close(model(QUERIES), expected, rtol=1e-9, atol=1e-9)
    assert sizes == []


def test_many_edits_end_in_a_new_factor(monkeypatch):
    monkeypatch.setattr(factor, "MOST_GONE", 2)
    monkeypatch.setattr(factor, "MOST_BESIDE", 3)
    model = memory(Classes(3), torch.Generator().manual_seed(0))
    model(QUERIES)
    sizes = counted(monkeypatch)
    for step in range(5):
        model.remember(
            torch.randn(1, WIDTH).double(), torch.tensor([0]), ids=torch.tensor([90 + step])
        )
        expect_the_same(model)
    assert len(model.solved[1]._kept._held[1][0].upper) > START
    sizes.clear()
    for step in range(3):
        model.forget(torch.tensor([step]))
        model(QUERIES)
    assert sizes == [START + 5 - 3] * 2


def test_a_change_behind_autograd_is_noticed():
    model = memory(Classes(3), torch.Generator().manual_seed(0))
    model(QUERIES)
    for changed in (model.vote.to_keys.weight, model.real.queue.features):
        changed.data[0] += 1.0
        model.reproject()
        expect_the_same(model)


def test_rows_that_are_hidden_change_nothing_that_is_kept():
    model = memory(Classes(3), torch.Generator().manual_seed(0))
    expected = model(QUERIES)
    kept = model.solved[1]._kept._held[1][0]
    hidden = torch.arange(START) % 5 == 0
    read = model.trace(QUERIES, memories=model.memories_with(hidden_rows=hidden)).logits
    assert model.solved[1]._kept._held[1][0] is kept
    model.forget(torch.arange(START)[hidden])
    torch.testing.assert_close(model(QUERIES), read, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(read, afresh(model)(QUERIES), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(read, expected)


def test_what_was_solved_for_to_weigh_it_is_not_solved_for_again(monkeypatch):
    torch.manual_seed(0)
    x, y = torch.randn(80, WIDTH), torch.randint(2, (80,))
    model = VotingMemory(nn.Identity(), 2, VoteConfig(), feature_dim=WIDTH).eval()
    sizes = counted(monkeypatch)
    learn_memory(model, EncodedRows(x[:60], y[:60]), EncodedRows(x[60:], y[60:]))
    with torch.no_grad():
        model(x[60:])
    assert sizes == [60, 60]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fingerprints_tell_every_row_from_every_other(dtype):
    rows = torch.randn(50, 3).to(dtype)[torch.randint(50, (200,))]  # many are alike
    weight = torch.ones(200)
    found = fingerprints(rows, weight)
    assert len(found.unique()) == 200
    kept = torch.arange(200) != 7
    fewer = fingerprints(rows[kept], weight[kept])
    assert int((~torch.isin(found, fewer)).sum()) == 1
    weight[9] = 2.0
    assert int((~torch.isin(fingerprints(rows, weight), found)).sum()) == 1


def test_nothing_is_kept_in_a_copy_or_a_file():
    model = memory(Classes(3), torch.Generator().manual_seed(0))
    model(QUERIES)
    assert len(model.solved[0]._kept._held[1]) == 1
    assert copy.deepcopy(model).solved[0]._kept._held == ([], [])
    assert not any("kept" in name or "upper" in name for name in model.state_dict())


def test_a_factor_of_no_rows_has_nothing_to_say():
    none = torch.empty(0, WIDTH).double()
    held = Factor.of(torch.empty(0).long(), none, none[:, 0], torch.tensor(1.0))
    assert held.solve(torch.empty(0).long(), torch.empty(0, 2).double()).shape == (0, 2)
    one = held.with_rows(torch.tensor([3]), torch.ones(1, WIDTH).double(), torch.ones(1).double())
    torch.testing.assert_close(
        one.solve(torch.tensor([3]), torch.ones(1, 1).double()), torch.full((1, 1), 0.5).double()
    )
