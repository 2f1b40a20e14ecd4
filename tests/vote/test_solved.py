"""Solved votes against kernel ridge regression written out in numpy."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from torch import nn
from torch.nn.functional import cross_entropy

import hma
from hma import VoteConfig, VotingMemory
from hma.memory.rows import EncodedRows
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.vote import solved as module
from hma.vote.solved import AskedRows, Kernel, SolvedVote

WIDTH, ROWS = 5, 30
TARGETS = {
    "classes": Classes(3),
    "one logit": Classes(1),
    "soft": SoftClasses(3),
    "yes/no": YesNo(2),
    "number": Number(centre=1.0, scale=2.0),
}


def labels_of(target, count):
    if isinstance(target, SoftClasses):
        return torch.rand(count, 3).softmax(dim=1)
    if isinstance(target, YesNo):
        labels = torch.randint(2, (count, 2)).float()
        labels[1, 0] = float("nan")
        return labels
    if isinstance(target, Number):
        return torch.randn(count)
    return torch.randint(max(target.count, 2), (count,))


def taught(target, rows=ROWS, seed=0, solved="both", **options):
    """Return a model that knows rows; every part has a share of the answer."""
    torch.manual_seed(seed)
    config = VoteConfig(key_dim=4, solved=solved, **options)
    model = VotingMemory(nn.Identity(), target=target, config=config, feature_dim=WIDTH)
    model = model.double().eval()
    x, y = torch.randn(rows, WIDTH).double(), labels_of(target, rows)
    model.remember(x, y, ids=torch.arange(rows))
    model.vote.share.fill_(0.2)
    for vote in model.solved:
        vote.gamma.fill_(0.3)
        vote.penalty.fill_(0.1)
        vote.temperature.fill_(4.0)
        vote.share.fill_(0.3)
        vote.prior.copy_(vote.target.wanted(model.real.queue.rows().labels).nanmean(dim=0))
    model.reproject()
    return model, x, y


@pytest.fixture(params=["all rows", "near rows"])
def solver(request, monkeypatch):
    """Solve for all rows together, or for those near a query: all of them, so that is the same."""
    if request.param == "near rows":
        monkeypatch.setattr(module, "MOST_SOLVED", 0)


def solve_by_hand(keys, wanted, gamma, penalty):
    """Return what each row says, a column at a time, among the rows that have the label."""
    keys, wanted = np.asarray(keys), np.asarray(wanted)
    found = np.zeros_like(wanted)
    for column in range(wanted.shape[1]):
        has = ~np.isnan(wanted[:, column])
        apart = ((keys[has][:, None] - keys[has]) ** 2).sum(-1)
        matrix = np.exp(-gamma * apart) + penalty * np.eye(has.sum())
        found[has, column] = np.linalg.solve(matrix, wanted[has, column])
    return found


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_rows_say_what_kernel_ridge_regression_solves_for(target):
    model, x, _ = taught(target)
    labels = model.real.queue.rows().labels
    for vote, rows in zip(model.solved, model.solve(), strict=True):
        keys = vote.place(model.view_of(vote, x))
        wanted = target.wanted(labels).double() - vote.prior
        expected = solve_by_hand(keys, wanted, 0.3, 0.1)
        np.testing.assert_allclose(rows.values, expected, atol=1e-9)


def test_scores_are_those_of_scikit_learn(solver):
    model, x, _ = taught(Classes(3))
    vote, rows = model.solved[1], list(model.solve())[1]
    wanted = (vote.target.wanted(model.real.queue.rows().labels) - vote.prior).numpy()
    ridge = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.3).fit(x.numpy(), wanted)
    new = torch.randn(7, WIDTH).double()
    np.testing.assert_allclose(rows.scores(new), ridge.predict(new.numpy()), atol=1e-9)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_leave_one_out_is_what_the_other_rows_say(target, solver):
    model, x, _ = taught(target)
    labels = model.real.queue.rows().labels
    for vote, rows in zip(model.solved, model.solve(), strict=True):
        keys = vote.place(model.view_of(vote, x))
        closed = vote.leave_one_out(rows, labels, torch.arange(ROWS))
        for row in (0, 1, 8, 15, 29):
            others = torch.arange(ROWS) != row
            wanted = target.wanted(labels[others]).double() - vote.prior
            values = solve_by_hand(keys[others], wanted, 0.3, 0.1)
            near = np.exp(-0.3 * ((keys[others] - keys[row]) ** 2).sum(-1).numpy())
            scores = torch.from_numpy(near @ values)[None] + vote.prior
            expected = target.from_scores(scores, vote.temperature, rows.known)
            torch.testing.assert_close(closed[row : row + 1], expected)


def refitted(model, x, y, kept):
    other = copy.deepcopy(model)
    other.reset_memory()
    other.remember(x[kept], y[kept], ids=kept)
    return other


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_forgetting_equals_a_memory_that_never_had_the_rows(target, solver):
    model, x, y = taught(target)
    kept = torch.arange(ROWS)[torch.arange(ROWS) % 4 != 1]
    expected = refitted(model, x, y, kept)
    model.forget(torch.arange(1, ROWS, 4))
    new = torch.randn(9, WIDTH).double()
    torch.testing.assert_close(model(new), expected(new))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_teaching_equals_a_memory_that_always_had_the_rows(target, solver):
    model, x, y = taught(target)
    less = refitted(model, x, y, torch.arange(20))
    new = torch.randn(9, WIDTH).double()
    assert not torch.allclose(less(new), model(new))
    less.remember(x[20:], y[20:], ids=torch.arange(20, ROWS))
    torch.testing.assert_close(less(new), model(new))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_hidden_rows_are_as_if_they_had_never_been_there(target, solver):
    model, x, y = taught(target)
    new = torch.randn(3, WIDTH).double()
    hidden = torch.zeros(3, ROWS, dtype=torch.bool)
    hidden[0, [2, 9]], hidden[1, 4] = True, True
    read = model.trace(new, memories=model.memories_with(hidden_rows=hidden)).logits
    for query, gone in enumerate(hidden):
        expected = refitted(model, x, y, (~gone).nonzero()[:, 0])(new[query : query + 1])
        torch.testing.assert_close(read[query : query + 1], expected)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_parts_of_rows_sum_to_the_answer(target, solver):
    model, _, _ = taught(target)
    new = torch.randn(4, WIDTH).double()
    exact = hma.explain(model, new).exact
    given = target.expected(model(new)).float()
    whole = exact.head + exact.from_queue + exact.from_slots + exact.even + exact.linear
    torch.testing.assert_close(whole.float(), given.reshape(whole.shape), atol=1e-6, rtol=0)
    for query in range(4):
        torch.testing.assert_close(
            exact.queue(query).sum(dim=0).reshape(-1).float(),
            exact.from_queue[query].reshape(-1).float(),
            atol=1e-6,
            rtol=0,
        )


def test_a_row_may_speak_against_an_answer():
    model, _, _ = taught(Classes(3))
    exact = hma.explain(model, torch.randn(4, WIDTH).double()).exact
    assert bool((exact.queue(0) < -1e-4).any())


@given(st.integers(1, 25), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_copies_of_a_row_and_single_rows_can_be_solved_for(rows, seed):
    torch.manual_seed(seed)
    target = Classes(3)
    vote = SolvedVote(target, "view", WIDTH).double()
    view = torch.randn(1, WIDTH).double().expand(rows, WIDTH).clone()
    labels = torch.randint(3, (rows,))
    vote.choose_kernel(view, labels)
    solved = vote.rows(view, labels, torch.ones(rows, dtype=torch.bool))
    said = vote.answer(view[:1], solved).softmax(dim=1)
    assert torch.isfinite(said).all()
    unseen = torch.bincount(labels, minlength=3) == 0
    assert float(said[0, unseen].sum()) < 1e-6


def test_a_class_that_nobody_has_is_never_answered():
    torch.manual_seed(0)
    vote = SolvedVote(Classes(4), "view", WIDTH).double()
    view, labels = torch.randn(20, WIDTH).double(), torch.randint(3, (20,))
    vote.choose_kernel(view, labels)
    rows = vote.rows(view, labels, torch.ones(20, dtype=torch.bool))
    assert float(vote.answer(view, rows).softmax(dim=1)[:, 3].max()) == 0.0


def test_widths_are_tried_as_long_as_the_last_is_the_best(monkeypatch):
    """A line is told best by the widest kernels, which lie beyond those that are tried first."""
    torch.manual_seed(0)
    view = torch.randn(80, WIDTH).double()
    labels = view[:, 0]
    monkeypatch.setattr(module, "WIDTHS", (10.0, 30.0))
    vote = SolvedVote(Number(centre=0.0, scale=1.0), "view", WIDTH).double()
    chosen = vote.choose_kernel(view, labels)
    assert chosen.width < 10.0
    rows = vote.place(view)
    apart = (rows[:, None] - rows).square().sum(dim=2)
    assert float(vote.gamma) == pytest.approx(
        chosen.width / float(apart[apart > 0].median()), rel=1e-6
    )


def test_a_given_kernel_is_taken_in_units_of_the_rows():
    torch.manual_seed(0)
    view, labels = torch.randn(40, WIDTH).double(), torch.arange(40) % 2
    first, second = (SolvedVote(Classes(2), "keys", WIDTH).double() for _ in range(2))
    chosen = first.choose_kernel(view, labels)
    second.choose_kernel(3 * view, labels, kernel=chosen)
    there = torch.ones(40, dtype=torch.bool)
    torch.testing.assert_close(
        second.answer(3 * view, second.rows(3 * view, labels, there)),
        first.answer(view, first.rows(view, labels, there)),
        atol=1e-4,
        rtol=1e-4,
    )


def view_of_two_kinds(own_scales):
    """Return rows whose classes lie in a column that is small, or large beside columns of noise."""
    torch.manual_seed(0)
    labels = torch.arange(120) % 3
    view = torch.randn(120, WIDTH).double()
    view[:, 0] = 2.0 * labels + 0.4 * torch.randn(120).double()
    view[:, 0] *= 0.01 if own_scales else 20.0
    return view, labels


@pytest.mark.parametrize("own_scales", [True, False])
def test_the_scales_with_which_rows_tell_each_other_most_are_chosen(own_scales):
    view, labels = view_of_two_kinds(own_scales)
    vote = SolvedVote(Classes(3), "view", WIDTH).double()
    assert vote.choose_kernel(view, labels).own_scales == own_scales
    deviation = vote.place(view).std(dim=0, correction=0)
    torch.testing.assert_close(deviation.square().mean(), torch.ones(()).double())
    assert (float(deviation.max() - deviation.min()) < 1e-9) == own_scales


def test_a_kernel_as_a_record_holds_it_is_the_same_kernel():
    view, labels = view_of_two_kinds(own_scales=False)
    first, second = (SolvedVote(Classes(3), "view", WIDTH).double() for _ in range(2))
    chosen = first.choose_kernel(view, labels)
    held = json.loads(json.dumps(list(chosen)))
    assert second.choose_kernel(view, labels, kernel=Kernel.of(held)) == chosen
    torch.testing.assert_close(second.spread, first.spread, rtol=0, atol=0)
    torch.testing.assert_close(second.gamma, first.gamma, rtol=0, atol=0)


def test_where_rows_tell_each_other_nothing_held_out_rows_choose_the_kernel():
    torch.manual_seed(0)
    centres = 3.0 * torch.randn(8, WIDTH).double()
    view, labels = centres, torch.arange(8)  # one row of each class: leave-one-out is blind
    asked = centres.repeat(6, 1) + torch.randn(48, WIDTH).double()
    wanted = labels.repeat(6)
    test = centres.repeat(20, 1) + torch.randn(160, WIDTH).double()

    def loss(held_out):
        vote = SolvedVote(Classes(8), "view", WIDTH).double()
        vote.choose_kernel(view, labels, held_out=held_out)
        rows = vote.rows(view, labels, torch.ones(8, dtype=torch.bool))
        return float(cross_entropy(vote.answer(test, rows), labels.repeat(20)))

    assert loss(AskedRows(asked, wanted)) < min(0.5 * loss(None), 0.5 * math.log(8))


def test_held_out_rows_choose_no_kernel_where_rows_tell_each_other_something():
    view, labels = view_of_two_kinds(own_scales=True)
    first, second = (SolvedVote(Classes(3), "view", WIDTH).double() for _ in range(2))
    misleading = AskedRows(view, (labels + 1) % 3)
    assert first.choose_kernel(view, labels) == second.choose_kernel(
        view, labels, held_out=misleading
    )


def test_a_taught_class_is_answered_by_its_rows(solver):
    model, _, _ = taught(Classes(3))
    (new,) = model.add_classes(1)
    place = torch.full((4, WIDTH), 6.0).double() + torch.randn(4, WIDTH).double() / 10
    model.remember(place, torch.full((4,), new), ids=torch.arange(100, 104))
    assert model(place.mean(dim=0, keepdim=True)).argmax(dim=1).tolist() == [new]
    exact = hma.explain(model, place[:1]).exact
    whole = exact.head + exact.from_queue + exact.even
    given = model(place[:1]).softmax(dim=1).float()
    torch.testing.assert_close(whole, given, atol=1e-6, rtol=0)


def test_permuted_labels_leave_nothing_to_solve_for():
    """Classes that lie apart are known out of sample; with permuted labels only their prior is."""
    torch.manual_seed(0)
    labels = torch.arange(90) % 3
    view = torch.randn(90, WIDTH).double() + 3 * nn.functional.one_hot(labels, WIDTH)
    losses = []
    for given_labels in (labels, labels[torch.randperm(90)]):
        vote = SolvedVote(Classes(3), "view", WIDTH).double()
        vote.choose_kernel(view, given_labels)
        rows = vote.rows(view, given_labels, torch.ones(90, dtype=torch.bool))
        said = vote.leave_one_out(rows, given_labels, torch.arange(90))
        losses.append(float(nn.functional.cross_entropy(said, given_labels)))
    assert losses[0] < 0.4
    assert losses[1] > np.log(3) - 0.1


def test_keys_that_learned_from_the_rows_make_leave_one_out_too_sure():
    """So held-out rows, not the stored ones, decide what a solved vote counts."""
    torch.manual_seed(0)
    x, y = torch.randn(120, 20), torch.randint(2, (120,))  # nothing to be known
    new_x, new_y = torch.randn(400, 20), torch.randint(2, (400,))
    model = VotingMemory(nn.Identity(), 2, VoteConfig(solved="both"), feature_dim=20)
    model.learn_memory([(x, y)])
    model.eval()
    vote, rows = model.solved[0], next(iter(model.solve()))
    left_out = vote.leave_one_out(rows, model.real.queue.rows().labels, torch.arange(120))
    fresh = vote.answer(model.view_of(vote, new_x), rows)
    loss = nn.functional.cross_entropy
    assert float(loss(left_out, y)) < float(loss(fresh, new_y)) - 0.02


@pytest.mark.parametrize("solved", ["none", "keys", "view", "both"])
def test_the_configuration_says_which_views_are_solved_for(solved):
    model = VotingMemory(nn.Identity(), 2, VoteConfig(solved=solved), feature_dim=WIDTH)
    views = {"none": [], "both": ["keys", "view"]}.get(solved, [solved])
    assert [vote.view for vote in model.solved] == views


def test_a_saved_memory_answers_alike(tmp_path):
    model, _, _ = taught(Classes(3))
    hma.save(model, tmp_path / "model")
    loaded = hma.load(tmp_path / "model", nn.Identity()).double().eval()
    new = torch.randn(6, WIDTH).double()
    torch.testing.assert_close(loaded(new), model(new))


def test_held_out_rows_weigh_every_answer():
    """Where only the view tells the class, its solved vote gets most of the answer."""
    torch.manual_seed(0)
    x = torch.randn(200, WIDTH)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = VotingMemory(nn.Identity(), 2, VoteConfig(), feature_dim=WIDTH).eval()
    rows = EncodedRows(x[:120], y[:120], torch.arange(120), None)
    found = model.after_training(
        lambda: rows, lambda: EncodedRows(x[120:], y[120:], None, None), seed=0
    )
    shares = [float(model.vote.share), *(float(vote.share) for vote in model.solved)]
    assert abs(found["memory_share"] - sum(shares)) < 1e-6
    assert 0 < sum(shares) <= 1 + 1e-6


def test_a_second_call_learns_from_the_held_out_rows_too():
    torch.manual_seed(0)
    x = torch.randn(200, WIDTH)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = VotingMemory(nn.Identity(), 2, VoteConfig(), feature_dim=WIDTH).eval()
    found = model.learn_memory([(x[:120], y[:120])], held_out=[(x[120:], y[120:])])
    shares = [float(model.vote.share), *(float(vote.share) for vote in model.solved)]
    again = model.learn_memory([(x, y)], like=found)
    assert len(model.memory_state().ids) == 200
    assert [float(model.vote.share), *(float(vote.share) for vote in model.solved)] == shares
    assert again["key_steps"] == round(found["key_passes"] * 2)  # 200 rows are two steps a pass
    with pytest.raises(ValueError, match="held_out or like, got both"):
        model.learn_memory([(x, y)], held_out=[(x, y)], like=found)


def test_a_row_of_weight_two_counts_as_two_copies():
    torch.manual_seed(0)
    view, labels = torch.randn(20, WIDTH).double(), torch.arange(20) % 2
    twice = torch.cat([torch.arange(20), torch.arange(5)])
    weight = torch.ones(20)
    weight[:5] = 2.0
    one, two = (SolvedVote(Classes(2), "keys", WIDTH).double() for _ in range(2))
    chosen = one.choose_kernel(view, labels, weight)
    two.choose_kernel(view[twice], labels[twice], kernel=chosen)
    two.gamma.copy_(one.gamma)
    weighted = one.rows(view, labels, torch.ones(20, dtype=torch.bool), weight)
    copied = two.rows(view[twice], labels[twice], torch.ones(25, dtype=torch.bool))
    new = torch.randn(6, WIDTH).double()
    torch.testing.assert_close(one.answer(new, weighted), two.answer(new, copied))


def test_weights_of_rows_are_stored_and_decide_the_answer():
    torch.manual_seed(0)
    x, y = torch.randn(60, WIDTH), torch.randint(2, (60,))
    said = []
    for heavy in (0, 1):
        weight = torch.where(y == heavy, 1000.0, 0.001)
        model = VotingMemory(nn.Identity(), 2, VoteConfig(), feature_dim=WIDTH).eval()
        rows = EncodedRows(x, y, torch.arange(60), weight / weight.mean())
        model.after_training(lambda rows=rows: rows, lambda: None, seed=0)
        model.forget(torch.tensor([3]))
        assert len(model.real.queue.rows().weight) == 59
        vote, solved = model.solved[1], list(model.solve())[1]
        said.append(vote.answer(model.view_of(vote, torch.randn(50, WIDTH)), solved).argmax(dim=1))
    assert float((said[0] == 0).float().mean()) > 0.95
    assert float((said[1] == 1).float().mean()) > 0.95
