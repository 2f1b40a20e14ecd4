"""Which rows come when, and what a class counts: against permutations, counts and scikit-learn."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from training_cases import (
    Scripted,
    plain_learner,
    quietly,
    rows,
    scripted_recipe,
    scripted_task,
)

from hma.data import Batch, InMemory, Task
from hma.errors import UserError
from hma.methods import Output
from hma.training.order import TrainingOrder, class_weights


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_holds_every_row_once_in_batches_of_the_asked_size(count, size, seed, epoch):
    batches = TrainingOrder(torch.zeros(count), size, seed).epoch(epoch)
    assert sorted(torch.cat(batches).tolist()) == list(range(count))
    assert all(len(places) == size for places in batches[:-1])
    assert len(batches[-1]) <= size + 1  # a single row left over joins the batch before
    if count > 1 and size > 1:
        assert all(len(places) >= 2 for places in batches)


@given(st.integers(1, 60), st.integers(1, 20), st.sampled_from(["none", "sampler"]))
def test_without_the_last_batch_all_batches_are_whole(count, size, balance):
    labels = torch.arange(count) % 3
    if count < size:
        with pytest.raises(UserError, match=rf"at most the number of training rows, {count}, got"):
            TrainingOrder(labels, size, 0, drop_last=True)
        return
    order = TrainingOrder(labels, size, 0, balance, drop_last=True)
    batches = order.epoch(0)
    assert [len(places) for places in batches] == [size] * (count // size)
    assert order.steps_per_epoch == len(batches)
    if balance == "none":
        assert len(set(torch.cat(batches).tolist())) == count // size * size


def test_every_epoch_leaves_out_other_rows():
    order = TrainingOrder(torch.zeros(50), 20, seed=0, drop_last=True)
    left_out = {frozenset(range(50)) - set(torch.cat(order.epoch(e)).tolist()) for e in range(9)}
    assert len(left_out) == 9


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 30), st.integers(0, 30))
def test_steps_run_through_the_epochs_one_after_the_other(count, size, first, more):
    order = TrainingOrder(torch.zeros(count), size, seed=1)
    every = [(e, places.tolist()) for e in range(61) for places in order.epoch(e)]
    found = [(epoch, places.tolist()) for epoch, places in order.steps(first, first + more)]
    assert found == every[first : first + more]


def test_the_order_is_a_function_of_seed_and_epoch_alone():
    labels = torch.zeros(50)
    order, again = TrainingOrder(labels, 7, seed=3), TrainingOrder(labels, 7, seed=3)
    later = [again.epoch(epoch) for epoch in (5, 2)]
    for epoch, batches in zip((5, 2), later, strict=True):
        assert all(map(torch.equal, order.epoch(epoch), batches))
    assert not torch.equal(torch.cat(order.epoch(2)), torch.cat(order.epoch(5)))
    other = TrainingOrder(labels, 7, seed=4)
    assert not torch.equal(torch.cat(order.epoch(2)), torch.cat(other.epoch(2)))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=50))
def test_class_weights_are_those_of_scikit_learn(labels):
    present = sorted(set(labels))
    found = class_weights(torch.tensor(labels), num_classes=6)
    expected = compute_class_weight("balanced", classes=np.array(present), y=labels)
    assert found[present].tolist() == pytest.approx(expected.tolist(), rel=1e-6)
    assert found[[label for label in range(6) if label not in present]].tolist() == [
        0.0 for label in range(6) if label not in present
    ]


def unbalanced(weight=None):
    labels = torch.tensor([0] * 6 + [1] * 3 + [0])
    split = InMemory(torch.zeros(10, 1), labels, weight=weight)
    return Task("uneven", "table", ("x", "y"), (1,), split, split, {})


def weights_seen(task, **changes):
    learner = Scripted([1, 1])
    quietly(learner, task, scripted_recipe(epochs=1, batch_size=5, **changes))
    return learner.weights


def test_rows_have_no_weight_unless_asked_for():
    assert weights_seen(unbalanced()) == [None, None]


def test_balance_by_loss_weighs_a_row_by_rows_over_classes_times_rows_of_its_class():
    seen = torch.cat(weights_seen(unbalanced(), balance="loss"))
    # 10 rows, 2 classes, 7 of the first and 3 of the second: 10 / (2 * 7) and 10 / (2 * 3)
    expected = Counter({round(10 / 14, 6): 7, round(10 / 6, 6): 3})
    assert Counter(round(weight, 6) for weight in seen.tolist()) == expected


def test_balance_by_loss_multiplies_weights_that_rows_have_already():
    own = torch.arange(10.0)
    seen = torch.cat(weights_seen(unbalanced(own), balance="loss"))
    by_hand = own * torch.tensor([10 / 14] * 6 + [10 / 6] * 3 + [10 / 14])
    torch.testing.assert_close(seen.sort().values, by_hand.sort().values)


def test_balance_by_loss_gives_the_weighted_mean_as_loss():
    logits, labels = torch.randn(10, 2), torch.tensor([0] * 7 + [1] * 3)
    weight = class_weights(labels, 2)[labels]
    learner, output = plain_learner(scripted_task()), Output(logits, logits)
    found = learner.loss_of(output, Batch(None, labels, torch.arange(10), weight))
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    # each class counts half
    torch.testing.assert_close(found, (each[:7].mean() + each[7:].mean()) / 2)


def test_balance_by_sampler_draws_every_class_alike_and_every_row_of_a_class_alike():
    labels = torch.tensor([0] * 90 + [1] * 9 + [3])
    order = TrainingOrder(labels, 20, seed=0, balance="sampler")
    drawn = torch.cat([torch.cat(order.epoch(epoch)) for epoch in range(300)])
    assert len(drawn) == 300 * 100
    counts = torch.bincount(labels[drawn], minlength=4)
    share = counts / len(drawn)
    assert share.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3], abs=0.02)
    times = torch.bincount(drawn, minlength=100)[90:99] / counts[1]
    assert times.tolist() == pytest.approx([1 / 9] * 9, abs=0.01)


def test_balance_by_sampler_reaches_the_learner():
    labels = torch.tensor([0] * 990 + [1] * 10)
    split = InMemory(torch.zeros(1000, 1), labels)
    task = Task("rare", "table", ("x", "y"), (1,), split, scripted_task().validation, {})
    learner = Scripted([1] * 200)
    seen = []
    learner.after_step = lambda batch: seen.append(batch.y)
    quietly(learner, task, scripted_recipe(epochs=1, balance="sampler", selection="last"))
    assert torch.cat(seen).float().mean().item() == pytest.approx(0.5, abs=0.06)


class Augmented(InMemory):
    """Rows whose ``x`` says what they were asked for with."""

    def batch(self, places, epoch=None):
        return (
            super()
            .batch(places)
            ._replace(x=torch.tensor([[-1 if epoch is None else epoch]] * len(places)))
        )


def test_a_split_that_augments_is_asked_with_the_epoch():
    train = rows(30, seed=1)
    augmented = Augmented(train.x, train.labels)
    task = Task("augmented", "table", ("x", "y"), (1,), augmented, scripted_task().validation, {})
    learner, seen = Scripted([1] * 9), []
    learner.after_step = lambda batch: seen.append(batch.x[0].tolist())
    quietly(learner, task, scripted_recipe(epochs=3, batch_size=15, selection="last"), seed=7)
    assert seen == [[0], [0], [1], [1], [2], [2]]


def test_rounds_of_steps_augment_by_the_pass_over_the_rows():
    train = rows(30, seed=1)
    augmented = Augmented(train.x, train.labels)
    task = Task("augmented", "table", ("x", "y"), (1,), augmented, scripted_task().validation, {})
    learner, seen = Scripted([1] * 9), []
    learner.after_step = lambda batch: seen.append(batch.x[0].tolist())
    recipe = scripted_recipe(epochs=3, batch_size=15, selection="last", evaluate_every_steps=3)
    quietly(learner, task, recipe, seed=7)
    assert seen == [[0], [0], [1], [1], [2], [2]]
