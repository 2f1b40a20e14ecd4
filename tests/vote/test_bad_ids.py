"""Sample ids and memories that nobody wished for: an error in one line, or a defined answer."""

import math

import pytest
import torch
from torch import nn
from vote_by_hand import TARGETS, WIDTH, labels_of, name_of

import hma
from hma import VoteConfig, VotingMemory
from hma.memory.rows import KeyedRows
from hma.targets import Classes
from hma.vote import learning
from hma.vote.learning import _Learning
from hma.vote.read import FAR


def model_of(target=None, rows=8, **config):
    torch.manual_seed(0)
    target = target or Classes(3)
    config = VoteConfig(**{"key_dim": 4, "key_dropout": 0.0, "candidates": None} | config)
    model = VotingMemory(nn.Linear(3, WIDTH), config=config, target=target, feature_dim=WIDTH)
    model.eval().vote.share.fill_(0.5)
    x, y = torch.randn(rows, 3), labels_of(target, rows)
    if rows:
        model.remember(x, y, ids=torch.arange(rows))
    return model, x, y


# ------------------------------------------------------------------------------ ids


@pytest.mark.parametrize("memory_size", [None, 3])
def test_of_rows_that_share_an_id_the_last_is_stored(memory_size):
    model, x, _ = model_of(rows=0, memory_size=memory_size)
    x = torch.randn(4, 3)
    model.remember(x, torch.tensor([0, 1, 2, 0]), ids=torch.tensor([7, 3, 7, 7]))
    state = model.memory_state()
    assert dict(zip(state.ids.tolist(), state.labels.tolist(), strict=True)) == {3: 1, 7: 0}
    torch.testing.assert_close(state.features, model.backbone(x[[1, 3]]).detach())


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([0, 1], TypeError, "ids must be a tensor of whole numbers, got list"),
        (torch.tensor([0.0, 1.0]), TypeError, "ids must be of an integer dtype, got torch.float32"),
        (torch.tensor([True, False]), TypeError, "ids must be of an integer dtype, got torch.bool"),
        (torch.tensor([0, 1, 2]), ValueError, r"ids must have shape \(2,\), got \(3,\)"),
        (torch.tensor([[0], [1]]), ValueError, r"ids must have shape \(2,\), got \(2, 1\)"),
    ],
)
def test_ids_that_are_none_are_refused_in_writing(ids, error, message):
    model, x, y = model_of()
    with pytest.raises(error, match=message) as caught:
        model.remember(x[:2], y[:2], ids=ids)
    assert "\n" not in str(caught.value)
    assert len(model.memory_state().ids) == 8


def test_negative_ids_are_refused_before_they_fill_the_memory():
    model, x, y = model_of()
    with pytest.raises(ValueError, match=r"ids must be 0 or more, or -1 .* got -5; number the"):
        model.remember(x[:2], y[:2], ids=torch.tensor([-5, 1]))
    assert len(model.memory_state().ids) == 8


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16])
def test_ids_of_any_integer_dtype_are_the_same_ids(dtype):
    model, x, y = model_of()
    ids = torch.tensor([3, 4])
    model.remember(x[3:5], y[3:5], ids=ids.to(dtype))
    assert model.memory_state().ids.tolist() == list(range(8))
    assert model.forget(ids.to(dtype)) == 2


def test_what_to_forget_is_checked():
    with pytest.raises(TypeError, match="ids must be a tensor of whole numbers, got int"):
        model_of()[0].forget(3)


# ------------------------------------------------------------------------- memories


@pytest.mark.parametrize("target", TARGETS, ids=name_of)
@pytest.mark.parametrize("case", ["empty", "one row", "all hidden", "larger than the data"])
def test_an_answer_is_finite_whatever_there_is_to_read(target, case):
    model, x, _ = model_of(
        target,
        rows={"empty": 0, "one row": 1}.get(case, 8),
        memory_size=1000 if case == "larger than the data" else None,
    )
    x = torch.randn(5, 3)
    features = model.backbone(x)
    hidden = torch.ones(model.real.queue.size, dtype=torch.bool) if case == "all hidden" else None
    logits = model.trace(features, memories=model.memories_with(hidden_rows=hidden)).logits
    assert logits.isfinite().all()
    if case != "all hidden":  # which nobody learns through
        logits.sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    if case in ("empty", "all hidden"):
        said, plain = (target.expected(z) for z in (logits, model.head(features)))
        torch.testing.assert_close(said, plain, atol=1e-4, rtol=1e-4)
    if case == "larger than the data":
        assert model.memory_state().ids.tolist() == list(range(8))


@pytest.mark.parametrize("slots", [0, 2])
def test_a_memory_of_one_class_has_a_finite_loss_for_all_and_an_explanation(slots):
    model, x, _ = model_of(rows=0, slots_per_class=slots)
    x, y = torch.randn(8, 3), torch.arange(8) % 3
    model.remember(x, torch.zeros(8, dtype=torch.long), ids=torch.arange(8))
    assert model.target.loss(model(x), y).isfinite().all()
    found = hma.explain(model, x)
    for part in (found.probabilities, found.queue, found.slots, found.by_class):
        assert part.isfinite().all()
    assert (found.by_class[:, 0] > found.by_class[:, 1]).all()


@pytest.mark.parametrize("log_sharpness", [1e6, -1e6, math.inf])
@pytest.mark.parametrize("target", TARGETS, ids=name_of)
def test_a_temperature_that_ran_away_is_bounded(target, log_sharpness):
    model, x, y = model_of(target)
    with torch.no_grad():
        model.vote.log_sharpness.fill_(log_sharpness)
    loss = target.loss(model(x), y).mean()
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    bound = math.exp(math.copysign(4.0, log_sharpness)) / 2
    assert float(model.vote.sharpness.detach()) == pytest.approx(bound)
    assert model(1e4 * x).isfinite().all()


# ----------------------------------------------------- a memory that is learned last


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(learning, "LEAST_STEPS", 20)
    monkeypatch.setattr(learning, "LEAST_PASSES", 1)


def expect_sound(model, x):
    """Weights, answers and explanations are finite."""
    assert all(value.isfinite().all() for value in model.vote.state_dict().values())
    found = hma.explain(model.eval(), x)
    assert found.probabilities.isfinite().all()
    assert found.queue.isfinite().all()


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("held_out", [0, 1, 6])
@pytest.mark.parametrize("case", ["one class", "one row", "larger than the data", "same ids"])
def test_a_memory_learned_last_is_sound_whatever_it_is_learned_from(case, held_out):
    model, x, _ = model_of(rows=0, memory_size=1000 if case == "larger than the data" else None)
    x, y, ids = torch.randn(9, 3), torch.arange(9) % 3, torch.arange(9)
    if case == "one class":
        y = torch.zeros(9, dtype=torch.long)
    if case == "one row":
        x, y, ids = x[:1], y[:1], ids[:1]
    if case == "same ids":
        ids = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])
    others = [(torch.randn(held_out, 3), torch.arange(held_out) % 3)] if held_out else []
    model.learn_memory([(x, y, ids)], others)
    state = model.memory_state()
    assert state.ids.tolist() == sorted(set(ids.tolist()))
    last = {int(one): int(label) for one, label in zip(ids, y, strict=True)}
    assert dict(zip(state.ids.tolist(), state.labels.tolist(), strict=True)) == last
    expect_sound(model, x)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("ids", [range(12), [*range(6), *range(6)]], ids=["once", "twice"])
@pytest.mark.parametrize("memory_size", [None, 4, 50])
def test_no_row_is_answered_by_its_own_copy_while_keys_are_learned(monkeypatch, ids, memory_size):
    model, _, _ = model_of(rows=0, memory_size=memory_size, candidates=3)
    x, y, ids = torch.arange(36.0).view(12, 3).sin(), torch.arange(12) % 3, torch.tensor([*ids])
    looked = []
    others = _Learning._others

    def noted(learning, places, keys):
        found = others(learning, places, keys)
        looked.append((ids[places], found))
        return found

    monkeypatch.setattr(_Learning, "_others", noted)
    drawn = noted_draws(monkeypatch)
    model.learn_memory([(x, y, ids)])
    assert len(looked) == 20
    stored = model.memory_state().ids
    for number, (own, (mates, rows)) in enumerate(looked):
        hidden = mates.squares >= FAR  # (B, B)
        assert hidden[own[:, None] == own].all()
        columns = drawn[number] if drawn else stored
        held = rows.squares[: len(columns)] >= FAR
        assert held[torch.isin(columns, own)].all()
        assert (rows.squares[len(columns) :] >= FAR).all()  # places that hold no row
    assert not all((mates.squares >= FAR).all() for _, (mates, _) in looked)


@pytest.mark.usefixtures("few_steps")
def test_a_model_that_leaves_nothing_out_lets_a_row_meet_its_own_copy(monkeypatch):
    model, _, _ = model_of(rows=0, leave_self_out=False)
    looked, others = [], _Learning._others
    monkeypatch.setattr(
        _Learning, "_others", lambda *given: looked.append(others(*given)) or looked[-1]
    )
    model.learn_memory([(torch.randn(12, 3), torch.arange(12) % 3, torch.arange(12))])
    assert len(looked) == 20
    for (stored,) in looked:  # and no batch that stands for its copies
        assert len(stored.squares) == 12
        assert (stored.squares < FAR).all()


def noted_draws(monkeypatch):
    """Return a list that is given the ids of the rows of every draw."""
    drawn, draw = [], KeyedRows.draw

    def noted(store, count, generator=None):
        places = draw(store, count, generator)
        drawn.append(store.ids[places])
        return places

    monkeypatch.setattr(KeyedRows, "draw", noted)
    return drawn


@pytest.mark.usefixtures("few_steps")
def test_a_row_that_is_not_finite_does_not_spoil_the_memory_that_is_learned_last():
    model, x, y = model_of(rows=0)
    x, y = torch.randn(9, 3), torch.arange(9) % 3
    x[4, 1] = math.nan
    with pytest.warns(UserWarning, match="1 of 9 rows hold NaN or infinity"):
        model.learn_memory([(x, y)], [(x, y)])
    assert model.memory_state().ids.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    expect_sound(model, x[:4])
    assert math.isfinite(float(model.vote.share))


@pytest.mark.usefixtures("few_steps")
def test_ids_of_a_memory_that_is_learned_last_are_checked():
    model, _, _ = model_of(rows=0)
    x, y = torch.randn(3, 3), torch.arange(3)
    with pytest.raises(TypeError, match=r"ids must be of an integer dtype, got torch\.float32"):
        model.learn_memory([(x, y, torch.arange(3.0))])
    with pytest.raises(ValueError, match="ids must come with every batch or with none, got 1 of 2"):
        model.learn_memory([(x, y, torch.arange(3)), (x, y)])
    with pytest.raises(ValueError, match=r"ids must have shape \(3,\), got \(2,\)"):
        model.learn_memory([(x, y, torch.arange(2))])
    with pytest.raises(ValueError, match="batches must hold at least one row, got none"):
        model.learn_memory([])
