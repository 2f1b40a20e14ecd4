"""The mean of late weights against a mean over a list of them."""

import pytest
import torch
from training_cases import MEMORY, interrupted_at, quietly

from hma.backbones import mlp
from hma.data.sets.digits import digits
from hma.errors import UserError
from hma.methods import erm, with_memory
from hma.paper.rivals import late_average
from hma.training import Interrupted, Recipe

PLAIN = erm(lambda task: mlp(64, hidden=(8,)))
MEMORY_ON_IT = with_memory(lambda task: mlp(64, hidden=(8,)), MEMORY)
RECIPE = Recipe(steps=9, batch_size=16, lr=1e-2, selection="last")


@pytest.fixture(scope="module")
def task():
    return digits(0, per_class=4)


@pytest.mark.parametrize("make", [PLAIN, MEMORY_ON_IT], ids=["plain", "memory"])
def test_answers_are_of_the_mean_of_the_weights_after_late_steps(task, make):
    seen, learner = [], late_average(make, first=4, every=2)(task, 0)
    after = learner.inner.after_step
    trained = {n for n, one in learner.inner.module.named_parameters() if one.requires_grad}

    def noted(batch):
        after(batch)
        own = dict(learner.inner.module.named_parameters())
        seen.append({name: own[name].detach().double().clone() for name in trained})

    learner.inner.after_step = noted
    quietly(learner, task, RECIPE)
    assert int(learner.module.taken) == 3  # after steps 4, 6 and 8
    for name, weight in learner.inner.module.named_parameters():
        if name in trained:
            expected = sum(seen[step - 1][name] for step in (4, 6, 8)) / 3
            torch.testing.assert_close(weight.double(), expected, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(seen[-1][n], seen[-2][n]) for n in trained)


def test_training_itself_is_that_of_the_method_inside(task):
    plain, late = PLAIN(task, 0), late_average(PLAIN, first=99)(task, 0)
    expected = quietly(plain, task, RECIPE)
    found = quietly(late, task, RECIPE)  # too short a run for a mean
    assert found.tests == expected.tests
    assert int(late.module.taken) == 0


def test_a_run_that_was_interrupted_ends_as_if_undisturbed(task, tmp_path):
    method = late_average(MEMORY_ON_IT, first=3, every=2)
    whole = method(task, 0)
    expected = quietly(whole, task, RECIPE, folder=tmp_path / "whole")
    with pytest.raises(Interrupted):
        quietly(interrupted_at(method(task, 0), 5), task, RECIPE, folder=tmp_path / "parts")
    learner = method(task, 5)
    assert quietly(learner, task, RECIPE, folder=tmp_path / "parts").tests == expected.tests
    for name, value in whole.module.state_dict().items():
        assert torch.equal(learner.module.state_dict()[name], value), name


@pytest.mark.parametrize("wrong", [{"first": 0}, {"first": 3, "every": 0}])
def test_steps_that_never_come_are_refused(wrong):
    with pytest.raises(UserError, match="must be a whole number"):
        late_average(PLAIN, **wrong)
