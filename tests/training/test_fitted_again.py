"""A second fit on all rows takes what validation chose for the first, and nothing else of it."""

from dataclasses import replace

import pytest
import torch
from training_cases import (
    EVERYTHING,
    interrupted_at,
    memory_learner,
    plain_learner,
    quietly,
    rows,
    small_task,
)

from hma.data import InMemory
from hma.data.task import Joined, Task
from hma.errors import Interrupted, UserError
from hma.training import Record
from hma.vote.config import VoteConfig

RECIPE = replace(EVERYTHING, epochs=8, patience=2, patience_from=0, calibrate=True)
VOTES = VoteConfig(key_dim=4)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    task, folder = small_task(), tmp_path_factory.mktemp("first")
    return task, quietly(memory_learner(task, config=VOTES), task, RECIPE, folder=folder)


def counted(learner):
    """Return the learner, which notes the sample ids of each of its steps."""
    inner, learner.seen = learner.loss, []

    def loss(batch):
        learner.seen.append(batch.ids.tolist())
        return inner(batch)

    learner.loss = loss
    return learner


def test_all_rows_are_seen_for_as_many_epochs_as_validation_chose(first):
    task, record = first
    learner = counted(memory_learner(task, config=VOTES))
    again = quietly(learner, task, RECIPE, like=record)
    whole = len(task.train) + len(task.validation)
    seen = sorted(id for step in learner.seen for id in step)
    assert seen == sorted([*range(whole)] * (record.selected_epoch + 1))
    assert sorted(learner.model.real.queue.rows().ids.tolist()) == [*range(whole)]
    assert again.measures["refit"] == {"rows": whole, "validation_is_of": record.weights_sha256}


def test_the_record_keeps_what_validation_said_of_the_first_fit(first):
    task, record = first
    again = quietly(memory_learner(task, config=VOTES), task, RECIPE, like=record)
    assert again.epochs == record.epochs
    for name in ("validation_loss", "temperature", "shares", "kernels", "key_passes"):
        assert again.measures[name] == record.measures[name]
    assert again.selection_rule.endswith("then fitted again on all 150 rows")
    assert again.tests != record.tests


def test_the_temperature_is_that_of_the_first_fit():
    task = small_task()
    record = quietly(plain_learner(task), task, RECIPE)
    heads = []
    for temperature in (1.0, 4.0):
        asked = replace(record, measures={**record.measures, "temperature": temperature})
        learner = plain_learner(task)
        quietly(learner, task, RECIPE, like=asked)
        heads.append(learner.module.head.weight.detach())
    torch.testing.assert_close(heads[0], 4 * heads[1])


def test_an_interrupted_second_fit_comes_to_the_same(first, tmp_path):
    task, record = first
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    quietly(memory_learner(task, config=VOTES), task, RECIPE, folder=whole, like=record)
    learner = interrupted_at(memory_learner(task, config=VOTES), 3)
    with pytest.raises(Interrupted):
        quietly(learner, task, RECIPE, folder=broken, like=record)
    quietly(memory_learner(task, config=VOTES), task, RECIPE, folder=broken, like=record)
    both = [Record.read(folder / "record.json").repeatable() for folder in (whole, broken)]
    assert both[0] == both[1]
    with pytest.raises(UserError, match="settings_of"):
        quietly(memory_learner(task, config=VOTES), task, RECIPE, folder=broken)


def test_rows_of_two_splits_come_in_the_order_asked_for():
    weighted = InMemory(torch.zeros(2, 3), torch.tensor([0, 1]), weight=torch.tensor([2.0, 3.0]))
    tokens = [
        InMemory(
            {"ids": torch.full((2, width), width), "mask": torch.ones(2, width)}, torch.ones(2)
        )
        for width in (2, 3)
    ]
    both = Joined(weighted, rows(2, seed=0, width=3))
    found = both.batch(torch.tensor([3, 1, 0, 2]))
    assert found.ids.tolist() == [3, 1, 0, 2]
    assert found.weight.tolist() == [1.0, 3.0, 2.0, 1.0]
    assert found.y.tolist() == both.labels[[3, 1, 0, 2]].tolist()
    assert both.batch(torch.tensor([1])).weight.tolist() == [3.0]
    padded = Joined(*tokens).batch(torch.tensor([2, 0])).x
    assert padded["ids"].tolist() == [[3, 3, 3], [2, 2, 0]]
    assert padded["mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    task = Task("two", "table", ("a", "b"), (3,), weighted, rows(2, 0, width=3), {})
    assert len(task.with_validation_trained().validation) == 0
