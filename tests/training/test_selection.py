"""Which epoch is kept and when a run stops, against scripted validation scores."""

from dataclasses import replace

import pytest
import torch
from training_cases import (
    EVERYTHING,
    Scripted,
    memory_learner,
    quietly,
    scripted_recipe,
    scripted_task,
    small_task,
)

from hma.data import InMemory, Task
from hma.errors import UserError

UP_AND_DOWN = [3, 7, 5, 9, 9, 4, 2, 8, 1, 6]


def run(correct=UP_AND_DOWN, **changes):
    learner = Scripted(correct)
    recipe = scripted_recipe(**{"epochs": len(correct)} | changes)
    return learner, quietly(learner, scripted_task(), recipe)


def kept_epoch(learner):
    return round(learner.module.weight.item()) - 1


def test_the_first_of_the_best_epochs_is_kept():
    learner, record = run()
    assert record.selected_epoch == kept_epoch(learner) == 3
    assert record.tests["test"]["alone"]["accuracy"] == 0.9


def test_the_last_epoch_is_kept_if_asked_for():
    learner, record = run(selection="last")
    assert record.selected_epoch == kept_epoch(learner) == 9
    assert record.selection_rule == "last epoch"
    assert record.tests["test"]["alone"]["accuracy"] == 0.6


def test_every_epoch_is_in_the_record_with_its_score():
    _, record = run()
    scores = [epoch["validation"]["alone"]["accuracy"] for epoch in record.epochs]
    assert scores == [correct / 10 for correct in UP_AND_DOWN]
    assert [epoch["epoch"] for epoch in record.epochs] == list(range(10))


@pytest.mark.parametrize(
    ("patience", "start", "epochs"),
    [
        (1, 0, 3),  # 3, 7, then 5 is not better
        (2, 0, 6),  # 9 at epoch 3, then 9 and 4
        (3, 0, 7),
        (1, 3, 5),  # epoch 2 is not better, but not counted; epoch 4 is no better than epoch 3
        (1, 5, 6),  # counting starts at epoch 5, which is not better
        (2, 5, 7),
        (2, 9, 10),  # no time for two epochs from 9 on
        (20, 0, 10),
    ],
)
def test_patience_counts_epochs_without_a_better_score_from_its_start(patience, start, epochs):
    learner, record = run(patience=patience, patience_from=start)
    assert len(record.epochs) == learner.trained == epochs


def test_epochs_without_validation_are_in_the_record_and_never_selected():
    learner, record = run(evaluate_every=3)
    validated = [epoch["epoch"] for epoch in record.epochs if epoch["validation"]]
    assert validated == [2, 5, 8, 9]  # every third, and the last
    assert record.selected_epoch == kept_epoch(learner) == 9  # of 5, 4, 1, 6


def test_steps_instead_of_epochs_cut_the_last_epoch_short():
    learner = Scripted([1] * 40)
    recipe = scripted_recipe(steps=7, batch_size=5, selection="last")
    record = quietly(learner, scripted_task(), recipe)
    assert learner.trained == round(learner.module.weight.item()) == 7
    assert len(record.epochs) == 4
    assert record.epochs[-1]["validation"]  # the last step is validated though its epoch is cut


def rounds(**changes):
    """Run for 14 steps, 2 to an epoch, with a validation after every third."""
    learner = Scripted([0, 0, 3, 0, 0, 8, 0, 0, 5, 0, 0, 4, 0, 1])
    recipe = scripted_recipe(epochs=7, batch_size=5, evaluate_every_steps=3, **changes)
    return learner, quietly(learner, scripted_task(), recipe)


def test_rounds_of_steps_are_validated_selected_and_recorded_like_epochs():
    learner, record = rounds()
    scores = [each["validation"]["alone"]["accuracy"] for each in record.epochs]
    assert scores == [0.3, 0.8, 0.5, 0.4, 0.1]  # after steps 3, 6, 9, 12, and the last
    assert record.selected_epoch == 1
    assert round(learner.module.weight.item()) == 6
    assert record.selection_rule.endswith("earliest of equals; a round is 3 steps")
    # the loss of a step is minus the number of steps before it
    assert [each["train_loss"] for each in record.epochs] == [-1, -4, -7, -10, -12.5]


def test_patience_counts_rounds_of_steps():
    learner, record = rounds(patience=2)
    assert (len(record.epochs), learner.trained) == (4, 12)
    assert "stopped after 2 rounds without a better one" in record.selection_rule


def test_when_to_validate_does_not_change_what_is_learned():
    weights = []
    for every in (None, 4, 100):
        task, learner = small_task(), memory_learner(small_task())
        recipe = replace(EVERYTHING, epochs=3, selection="last", patience=None)
        quietly(learner, task, replace(recipe, evaluate_every_steps=every))
        weights.append(learner.module.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        assert torch.equal(value, weights[2][name])


def test_rows_that_do_not_fill_a_batch_can_be_left_out():
    learner = Scripted([1] * 40)
    sizes = []
    learner.after_step = lambda batch: sizes.append(len(batch.y))
    recipe = scripted_recipe(epochs=2, batch_size=4, selection="last", drop_last=True)
    quietly(learner, scripted_task(), recipe)
    assert sizes == [4] * 4
    with pytest.raises(UserError, match="drop_last leaves nothing to train on"):
        quietly(learner, scripted_task(), replace(recipe, batch_size=11))


def test_without_validation_rows_only_the_last_epoch_can_be_kept():
    empty = InMemory(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    task = replace(scripted_task(), validation=empty)
    with pytest.raises(UserError, match="validation split of 'script' is empty"):
        quietly(Scripted([1]), task, scripted_recipe(epochs=1))
    record = quietly(Scripted([4]), task, scripted_recipe(epochs=1, selection="last"))
    assert record.epochs[0]["validation"] == {}
    assert record.tests["test"]["alone"]["accuracy"] == 0.4


def test_an_empty_test_split_is_refused_before_training():
    empty = InMemory(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    task = replace(scripted_task(), tests={"near": scripted_task().train, "far": empty})
    learner = Scripted([1])
    with pytest.raises(UserError, match="test split 'far' of 'script' must have at least one row"):
        quietly(learner, task, scripted_recipe(epochs=1))
    assert learner.trained == 0


def test_a_score_that_is_not_defined_cannot_select():
    one_class = InMemory(torch.zeros(10, 1), torch.zeros(10, dtype=torch.long))
    task = Task("one", "table", ("x", "y"), (1,), one_class, one_class, {}, "auroc")
    with pytest.raises(UserError, match="auroc is not defined on the validation split of 'one'"):
        quietly(Scripted([1]), task, scripted_recipe(epochs=1))


def test_a_loss_that_is_not_finite_ends_the_run_with_the_remedy():
    learner = Scripted([1, 1])
    learner.loss = lambda batch: learner.module.weight.sum() * float("nan")
    with pytest.raises(UserError, match=r"the loss of epoch 0 is nan; lower lr \(now 1.0\)"):
        quietly(learner, scripted_task(), scripted_recipe(epochs=2))
