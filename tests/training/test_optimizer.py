"""The learning rate of every step against torch's own schedulers."""

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR, StepLR
from training_cases import plain_learner, quietly, small_task

from hma.training import Recipe
from hma.training.optimizer import learning_rate

STEPS, PER_EPOCH = 30, 5


def rates_of_torch(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = make(optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def warm(optimizer, then, steps=6):
    rise = LinearLR(optimizer, start_factor=1 / steps, end_factor=1.0, total_iters=steps - 1)
    return SequentialLR(optimizer, [rise, then(optimizer)], milestones=[steps])


@pytest.mark.parametrize(
    ("changes", "oracle"),
    [
        ({"schedule": "cosine"}, lambda o: CosineAnnealingLR(o, STEPS)),
        (
            {"schedule": "step", "decay_every": 2, "decay_factor": 0.3},
            lambda o: StepLR(o, 2 * PER_EPOCH, gamma=0.3),
        ),
        (
            {"schedule": "cosine", "warmup_steps": 6},
            lambda o: warm(o, lambda o: CosineAnnealingLR(o, STEPS - 6)),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
def test_the_rate_of_each_step_is_that_of_torch(changes, oracle):
    rate = learning_rate(Recipe(lr=0.1, **changes), PER_EPOCH, STEPS)
    found = [rate(step) for step in range(STEPS)]
    assert found == pytest.approx(rates_of_torch(oracle), rel=1e-9, abs=1e-12)


def test_a_constant_rate_warms_up_too():
    rate = learning_rate(Recipe(lr=0.1, warmup_steps=4), PER_EPOCH, STEPS)
    assert [rate(step) for step in range(6)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_the_optimizer_moves_by_the_rate_of_its_step():
    """Plain gradient descent on a loss with gradient -1 adds up the rates."""
    learner = plain_learner(small_task())
    start = learner.module.head.bias.detach().clone()
    learner.loss = lambda batch: -learner.module.head.bias.sum()
    recipe = Recipe(
        epochs=3, batch_size=30, optimizer="sgd", sgd_momentum=0.0, lr=0.1, schedule="cosine",
        warmup_steps=2, selection="last",
    )  # fmt: skip
    record = quietly(learner, small_task(), recipe)
    rate = learning_rate(recipe, 3, 9)
    moved = (learner.module.head.bias - start).mean().item()
    assert moved == pytest.approx(sum(rate(step) for step in range(9)), rel=1e-5)
    assert [epoch["lr"] for epoch in record.epochs] == [rate(2), rate(5), rate(8)]
