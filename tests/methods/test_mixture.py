"""Shares of a mixture against scipy and a grid, and the mixture against its formula."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, softmax

from hma.attention.config import HMAConfig
from hma.backbones import Frozen, mlp
from hma.data import Batch, InMemory, Task
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.methods.mixture import Mixture
from hma.targets import Classes, Number, SoftClasses, YesNo
from hma.vote import weighing as shares_module
from hma.vote.weighing import fit_shares


def answers(target, rows, count, seed):
    """Return what learners of different worth say of rows, and the labels of these."""
    draw = np.random.default_rng(seed)
    if isinstance(target, Number):
        y = draw.normal(size=rows)
        said = [y[:, None] + (1 + m) * draw.normal(size=(rows, 1)) for m in range(count)]
        return [torch.tensor(z) for z in said], torch.tensor(y * target.scale + target.centre)
    if isinstance(target, YesNo):
        y = draw.integers(2, size=(rows, target.count)).astype(float)
        truth = 2 * y - 1
        y[draw.random(y.shape) < 0.2] = np.nan
    else:
        y = draw.integers(target.table_rows, size=rows)
        truth = 2 * np.eye(target.table_rows)[y]
        truth = truth if target.outputs > 1 else truth[:, 1:] - 1
    said = [truth / (1 + m) + 2 * draw.normal(size=truth.shape) for m in range(count)]
    return [torch.tensor(z) for z in said], torch.tensor(y)


def cost_by_hand(target, said, y):
    """Return the cost of shares as a function, written with numpy; ``a`` is 1."""
    z = np.stack([one.numpy() for one in said])
    y = np.asarray(y)
    if isinstance(target, Number):
        errors = z[:, :, 0] - (y - target.centre) / target.scale
        noise = (errors**2).mean(axis=1).min()
        return lambda w: ((w @ errors) ** 2).sum() / (2 * noise) - np.log(w).sum()
    if isinstance(target, YesNo):
        p = expit(z)
        known = ~np.isnan(y)

        def yes_no(w):
            mean = np.tensordot(w, p, 1)
            each = -np.log(np.where(np.nan_to_num(y) == 1, mean, 1 - mean))
            per_row = (each * known).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
            return per_row.sum() - np.log(w).sum()

        return yes_no
    p = softmax(z, axis=2) if target.outputs > 1 else np.concatenate([1 - expit(z), expit(z)], 2)
    right = p[:, np.arange(len(y)), y]
    return lambda w: -np.log(w @ right).sum() - np.log(w).sum()


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(
    "target", [Classes(1), Classes(3), SoftClasses(3), YesNo(4), Number(5.0, 3.0)], ids=str
)
def test_shares_are_those_that_scipy_finds(target, count):
    said, y = answers(target, 60, count, seed=count)
    cost = cost_by_hand(target, said, y)
    best = minimize(
        lambda free: cost(softmax(free)), np.zeros(count), method="BFGS", options={"gtol": 1e-9}
    )
    shares = fit_shares(said, y, target, favour=[1.0] * count)
    assert sum(shares) == pytest.approx(1.0)
    assert shares == pytest.approx(softmax(best.x).tolist(), abs=1e-4)
    assert cost(np.array(shares)) <= cost(softmax(best.x)) + 1e-7


def test_no_point_of_a_grid_costs_less():
    target = Classes(3)
    said, y = answers(target, 40, 3, seed=0)
    cost = cost_by_hand(target, said, y)
    found = cost(np.array(fit_shares(said, y, target, favour=[1.0] * 3)))
    steps = np.linspace(0.005, 0.99, 60)
    grid = [cost(np.array([a, b, 1 - a - b])) for a in steps for b in steps if a + b < 0.999]
    assert found <= min(grid)


@pytest.mark.parametrize("target", [Classes(1), Classes(3), YesNo(4), Number(5.0, 3.0)], ids=str)
def test_learners_are_favoured_by_what_they_lose_alone(target):
    said, y = answers(target, 20, 3, seed=4)
    cost = cost_by_hand(target, said, y)  # its last part is 0 where a learner answers alone
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.array([cost(share) - (-np.log(share).sum()) for share in nearly_alone(3)])
    favour = 0.02 + 3 * softmax(-alone / 5)
    expected = fit_shares(said, y, target, favour=favour.tolist())
    assert fit_shares(said, y, target) == pytest.approx(expected, abs=1e-5)
    assert max(favour) - min(favour) > 0.05


def nearly_alone(count):
    """Return shares that leave the others as little as the cost can be computed with."""
    return np.eye(count) * (1 - count * 1e-9) + 1e-9


def test_few_rows_leave_shares_nearly_equal_and_many_decide():
    right, wrong = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    few, many = (
        fit_shares(
            [right.repeat(n, 1), wrong.repeat(n, 1)], torch.zeros(n, dtype=torch.long), Classes(2)
        )
        for n in (1, 1000)
    )
    assert 0.5 < few[0] < 0.8
    assert many[0] > 0.99


def test_a_learner_that_diverged_gets_nothing():
    said, y = answers(Classes(3), 30, 2, seed=1)
    broken = said[0].clone()
    broken[3, 1] = torch.nan
    assert fit_shares([broken, said[1]], y, Classes(3)) == [0.0, pytest.approx(1.0)]
    with pytest.raises(UserError, match="finite outputs of at least one row"):
        fit_shares([broken], y, Classes(3))
    with pytest.raises(UserError, match="finite outputs of at least one row"):
        fit_shares([said[0][:0]], y[:0], Classes(3))


def test_of_many_rows_evenly_spaced_ones_decide(monkeypatch):
    said, y = answers(Classes(3), 100, 2, seed=2)
    monkeypatch.setattr(shares_module, "MOST_NUMBERS", 3 * 34)
    some = np.linspace(0, 99, 34).round().astype(int)
    expected = fit_shares([z[some] for z in said], y[some], Classes(3))
    assert fit_shares(said, y, Classes(3)) == pytest.approx(expected)


# ------------------------------------------------------------------ answering together


def learners(backbone, rows=20):
    rows = InMemory(torch.randn(rows, 4), torch.arange(rows) % 3)
    task = Task("rows", "table", ("a", "b", "c"), (4,), rows, rows, {})
    config = HMAConfig(queue_size=8, slots_per_class=1, label_dim=4, num_heads=1, dropout=0.0)
    found = {
        "plain": erm(backbone)(task, 0),
        "memory": with_memory(backbone, config, alone=True)(task, 1),
    }
    for learner in found.values():
        learner.after_step(rows.batch(torch.arange(8)))
        learner.module.eval()
    return found


@torch.no_grad()
def test_a_mixture_answers_the_mean_of_its_learners_in_each_context():
    made = learners(lambda task: mlp(4, hidden=(8,)))
    mixed = Mixture(made, {"plain": 0.25, "memory": 0.75})
    assert mixed.contexts == ("alone", "batch", "batch-sorted")
    batch = Batch(torch.randn(5, 4), torch.zeros(5, dtype=torch.long), torch.arange(5))
    found = {}
    for context in ("alone", "batch"):
        made["memory"].use(context)
        each = [made[name].predict(batch).softmax(dim=1) for name in ("plain", "memory")]
        mixed.use(context)
        found[context] = mixed.predict(batch)
        torch.testing.assert_close(found[context].exp(), 0.25 * each[0] + 0.75 * each[1])
    assert not torch.allclose(found["alone"], found["batch"])


@torch.no_grad()
def test_a_frozen_backbone_that_is_shared_runs_once():
    counted = []
    still = Frozen(mlp(4, hidden=(8,)))
    still.encoder.register_forward_hook(lambda *_: counted.append(1))
    mixed = Mixture(learners(lambda task: still), {"plain": 0.5, "memory": 0.5})
    x = torch.randn(5, 4)
    batch = Batch(x, torch.zeros(5, dtype=torch.long), torch.arange(5))
    counted.clear()
    answered = mixed.predict(batch)
    assert len(counted) == 1
    known = batch._replace(x=None, features=still(x))
    counted.clear()
    torch.testing.assert_close(mixed.predict(known), answered)
    assert counted == []


def test_a_learner_without_a_share_is_not_asked():
    made = learners(lambda task: mlp(4, hidden=(8,)))
    mixed = Mixture(made, {"plain": 1.0, "memory": 0.0})
    assert list(mixed.learners) == ["plain"]
    with pytest.raises(UserError, match=r"must sum to 1, got 0\.5"):
        Mixture(made, {"plain": 0.5})
