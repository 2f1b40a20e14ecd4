"""Learning rates by part, warm-up by share, selection by loss, calibration, and curves in words."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from training_cases import memory_learner, quietly, small_task

from hma import HMA, HMAConfig, VotingMemory
from hma.metrics import temperature_for
from hma.options.config import ConfigError
from hma.targets import Classes, Number
from hma.training import Recipe, UserRecipe, curve_note
from hma.training.loop import apply_temperature
from hma.training.optimizer import learning_rate, make_optimizer


def test_all_factors_at_one_are_one_group_in_the_order_of_the_module():
    module = memory_learner(small_task()).module
    (group,) = make_optimizer(module, Recipe()).param_groups
    trained = [p for p in module.parameters() if p.requires_grad]
    assert all(one is two for one, two in zip(group["params"], trained, strict=True))
    assert group["factor"] == 1.0


def test_each_part_gets_its_own_rate_and_wide_reads_a_smaller_one():
    model = memory_learner(small_task()).module
    width = model.real.read.dim
    recipe = Recipe(backbone_lr=0.5, head_lr=3.0, reads_width=width // 2)
    groups = make_optimizer(model, recipe).param_groups
    factor = {id(p): group["factor"] for group in groups for p in group["params"]}
    assert {factor[id(p)] for p in model.backbone.parameters()} == {0.5}
    assert {factor[id(p)] for p in model.head.parameters()} == {3.0}
    assert {factor[id(p)] for p in model.real.read.parameters()} == {(width // 2) / width}
    assert factor[id(model.synthetic.slots)] == 1.0
    narrow = make_optimizer(model, replace(recipe, reads_width=4 * width)).param_groups
    assert {group["factor"] for group in narrow} == {0.5, 3.0, 1.0}


def test_the_longer_warm_up_counts():
    rate = learning_rate(Recipe(lr=1.0, warmup_steps=2, warmup_share=0.4), 1, steps=10)
    assert [rate(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_run_that_is_not_told_how_long_has_fifty_epochs_and_at_least_1500_steps():
    assert [UserRecipe().steps_of(a_pass) for a_pass in (1, 7, 30, 100)] == [1500, 1505, 1500, 5000]
    assert UserRecipe(epochs=3).steps_of(7) == 21
    assert UserRecipe(steps=10).steps_of(7) == 10
    task = small_task()
    recipe = replace(UserRecipe(batch_size=len(task.train)).fixed(), patience=2, patience_steps=0)
    record = quietly(memory_learner(task), task, replace(recipe, lr=1.0))
    assert len(record.epochs) < 1500  # patience ends it
    assert record.epochs[0]["lr"] == pytest.approx(1.0 / (0.05 * 1500))


def test_the_epoch_with_the_least_loss_is_kept_and_the_logits_are_calibrated():
    task = small_task()
    learner = memory_learner(task)
    recipe = UserRecipe(epochs=3, batch_size=16, lr=0.01).fixed()
    record = quietly(learner, task, recipe)
    context = learner.contexts[0]
    losses = [epoch["validation"][context]["calibrated_loss"] for epoch in record.epochs]
    assert record.selected_epoch == losses.index(min(losses))
    assert record.measures["validation_loss"] == pytest.approx(min(losses), rel=1e-5)
    assert record.selection_rule.startswith("best validation calibrated loss")


def test_a_temperature_is_the_minimum_of_its_cost():
    generator = torch.Generator().manual_seed(0)
    logits = 6 * torch.randn(50, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (50,), generator=generator)
    found = temperature_for(logits, labels, Classes(3))

    def cost(temperature):
        prior = torch.tensor(temperature).log() ** 2 / (2 * 0.5**2)
        return float(cross_entropy(logits / temperature, labels, reduction="sum") + prior)

    grid = [0.1 * 1.01**step for step in range(460)]
    assert cost(found) <= min(map(cost, grid)) + 1e-4
    assert temperature_for(logits[:, :1], labels.double(), Number()) == 1.0
    x = torch.randn(2, 4)
    for model in (
        VotingMemory(nn.Identity(), 3, feature_dim=4),
        HMA(nn.Identity(), 3, HMAConfig(queue_size=4, slots_per_class=1), feature_dim=4),
    ):
        model.eval().remember(torch.randn(6, 4), torch.arange(6) % 3, ids=torch.arange(6))
        before = model(x)
        apply_temperature(model, 2.0)
        torch.testing.assert_close(model(x).log_softmax(dim=1), (before / 2).log_softmax(dim=1))


def test_calibration_needs_an_epoch_that_validation_chose():
    with pytest.raises(ConfigError, match="calibrate needs selection 'best' or 'loss'"):
        Recipe(calibrate=True, selection="last")


def curve(losses, *, selected, epochs):
    record = quietly(memory_learner(small_task()), small_task(), Recipe(epochs=1, batch_size=64))
    rounds = [{**record.epochs[0], "train_loss": loss} for loss in losses]
    setup = {**record.setup, "recipe": Recipe(epochs=epochs).to_json()}
    return curve_note(replace(record, epochs=rounds, selected_epoch=selected, setup=setup))


def test_a_curve_that_still_improves_or_diverges_is_said_in_one_line():
    assert curve([1.0, 0.5, 0.3], selected=2, epochs=3).startswith("still improving in the last of")
    assert curve([1.0, 0.5, 0.3], selected=2, epochs=None).startswith("still improving in the last")
    assert curve([1.0, 0.5, 0.3], selected=2, epochs=9) is None  # stopped by patience
    assert curve([1.0, 0.5, 0.3], selected=1, epochs=None) is None
    assert curve([1.0, 0.2, 3.0], selected=1, epochs=3).startswith("the training loss rose again")
    assert curve([1.0, 0.5, 0.49999], selected=1, epochs=3) is None
