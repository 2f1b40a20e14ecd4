"""A run interrupted at any moment and started again ends as if nothing had happened."""

import json
import os
import random
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from training_cases import (
    EVERYTHING,
    MEMORY,
    Noisy,
    memory_learner,
    plain_learner,
    quietly,
    small_task,
)

from hma.errors import UserError
from hma.training import Interrupted, Record
from hma.training.run_folder import RunFolder
from hma.vote.config import VoteConfig


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The run of all tests here, from start to end in one go, without a single checkpoint."""
    folder = tmp_path_factory.mktemp("undisturbed")
    task = small_task()
    recipe = replace(EVERYTHING, checkpoint_every_seconds=1e9)
    record = quietly(memory_learner(task), task, recipe, folder=folder)
    assert len(record.epochs) < recipe.epochs, "early stopping is part of the run"
    assert 0 < record.selected_epoch < len(record.epochs) - 1, "and so are kept weights"
    return folder


def without_checkpoint_times(record):
    values = record.repeatable()
    recipe = values["setup"]["recipe"]
    for name in ("checkpoint_every_seconds", "checkpoint_every_steps"):
        recipe.pop(name)
    return values


def expect_same(folder, undisturbed):
    found, expected = (Record.read(path / "record.json") for path in (folder, undisturbed))
    assert without_checkpoint_times(found) == without_checkpoint_times(expected)
    weights = [(path / "weights.safetensors").read_bytes() for path in (folder, undisturbed)]
    assert weights[0] == weights[1]
    names = set(load_file(folder / "weights.safetensors"))
    assert {"real.queue.features", "momentum_encoder.encoder.layers.1.running_mean"} <= names
    assert not (folder / "checkpoints").exists()


def test_twenty_kills_at_random_moments_change_nothing(processes, tmp_path, undisturbed):
    chance = random.Random(0)
    duration = Record.read(undisturbed / "record.json").seconds
    kills = resumed = rounds = 0
    while kills < 20:
        folder, rounds = tmp_path / f"round {rounds}", rounds + 1
        code = None
        while code != 0 and kills < 20:
            resumed += bool(RunFolder(folder).checkpoints.steps())
            processes.start("train", folder=str(folder))
            code = processes.ended(within=0.05 + chance.uniform(0, duration / 4))
            if code is None:
                processes.signal(signal.SIGKILL)
                code = processes.ended()
            if code == -signal.SIGKILL:
                kills += 1
            else:
                assert code == 0, processes.said()
        if code != 0:
            processes.start("train", folder=str(folder))
            assert processes.ended() == 0, processes.said()
        expect_same(folder, undisturbed)
    assert resumed >= 5, "most starts must have gone on from a checkpoint"


@pytest.mark.parametrize(
    ("asked", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_a_signal_ends_a_run_cleanly_and_it_can_go_on(
    processes, tmp_path, undisturbed, asked, name
):
    processes.start("train", folder=str(tmp_path), checkpoint_every_seconds=1e9)
    wait_until(lambda: any((tmp_path / "tensorboard").glob("*")))
    time.sleep(0.2)
    processes.signal(asked)
    assert processes.ended() == 128 + asked, processes.said()
    [said] = processes.said().splitlines()
    (step,) = RunFolder(tmp_path).checkpoints.steps()
    assert said.startswith(f"stopped by {name} after step {step} of 360; start the same run again")
    processes.start("train", folder=str(tmp_path))
    assert processes.ended() == 0, processes.said()
    expect_same(tmp_path, undisturbed)


def wait_until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def interrupting(learner, at_call, numbers=(signal.SIGINT,), verb="loss"):
    """Make the learner's ``verb`` send signals to this process in its ``at_call``-th call."""
    calls, inner = iter(range(10**9)), getattr(learner, verb)

    def wrapped(batch):
        if next(calls) == at_call:
            for number in numbers:
                os.kill(os.getpid(), number)
        return inner(batch)

    setattr(learner, verb, wrapped)
    return learner


SHORT = replace(EVERYTHING, epochs=4, patience=None)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """What a run of four epochs comes to, undisturbed."""
    task, folder = small_task(), tmp_path_factory.mktemp("short")
    return quietly(memory_learner(task), task, SHORT, folder=folder).repeatable()


@pytest.mark.parametrize("step", [0, 5, 6, 17])
def test_the_step_under_way_is_finished_and_saved(tmp_path, short, step):
    task = small_task()
    learner = interrupting(memory_learner(task), step)
    with pytest.raises(Interrupted, match=rf"after step {step + 1} of 24; start the same"):
        quietly(learner, task, SHORT, folder=tmp_path)
    assert learner.module is learner.model, "the learner gets its own module back"
    learner = memory_learner(task, seed=5)  # other first weights: all come from the checkpoint
    assert quietly(learner, task, SHORT, folder=tmp_path).repeatable() == short


VOTING = VoteConfig(key_dim=8, candidates=20)


@pytest.mark.parametrize(
    ("config", "step"),
    [
        *((VOTING, step) for step in (3, 6, 17)),
        (replace(VOTING, memory_size=30, slots_per_class=2), 6),
        (replace(MEMORY, alone_share=0.4, momentum_warmup=True), 7),
    ],
)
def test_every_kind_of_memory_goes_on_as_if_undisturbed(tmp_path, config, step):
    task = small_task()
    undisturbed = memory_learner(task, config=config)
    whole = quietly(undisturbed, task, SHORT, folder=tmp_path / "whole").repeatable()
    learner = interrupting(memory_learner(task, config=config), step)
    with pytest.raises(Interrupted):
        quietly(learner, task, SHORT, folder=tmp_path / "cut")
    learner = memory_learner(task, seed=5, config=config)
    assert quietly(learner, task, SHORT, folder=tmp_path / "cut").repeatable() == whole
    for name, value in undisturbed.module.state_dict().items():
        assert torch.equal(learner.module.state_dict()[name], value), name


@pytest.mark.parametrize("call", [0, 3, 9])
def test_validation_can_be_interrupted_between_two_batches(tmp_path, short, call):
    task = small_task()
    learner = interrupting(memory_learner(task), call, verb="answer")
    with pytest.raises(Interrupted):
        quietly(learner, task, SHORT, folder=tmp_path)
    assert quietly(memory_learner(task), task, SHORT, folder=tmp_path).repeatable() == short


def test_a_prediction_that_draws_random_numbers_does_not_disturb_training(tmp_path, short):
    task, recipe = small_task(), SHORT

    def drawing(learner):
        inner = learner.answer
        learner.answer = lambda batch: (torch.rand(1), inner(batch))[1]
        return learner

    learner = interrupting(drawing(memory_learner(task)), 5, verb="answer")
    with pytest.raises(Interrupted):
        quietly(learner, task, recipe, folder=tmp_path)
    found = quietly(drawing(memory_learner(task)), task, recipe, folder=tmp_path)
    assert found.repeatable() == short


def test_tests_can_be_interrupted_after_the_last_step(tmp_path, short):
    task = small_task()
    learner = interrupting(memory_learner(task), 4 * 4 + 1, verb="answer")
    with pytest.raises(Interrupted, match="after step 24 of 24"):
        quietly(learner, task, SHORT, folder=tmp_path)
    assert quietly(memory_learner(task), task, SHORT, folder=tmp_path).repeatable() == short


def test_a_second_signal_does_not_wait_for_the_step():
    task = small_task()
    learner = interrupting(memory_learner(task), 3, (signal.SIGINT, signal.SIGINT))
    steps = []
    learner.after_step = lambda batch: steps.append(1)
    with pytest.raises(Interrupted, match="stopped at once"):
        quietly(learner, task, EVERYTHING)
    assert len(steps) == 3


def test_without_a_folder_an_interruption_says_that_nothing_was_kept():
    with pytest.raises(Interrupted, match="nothing was kept, because the run has no folder") as at:
        quietly(interrupting(memory_learner(small_task()), 2), small_task(), EVERYTHING)
    assert at.value.exit_code == 130
    assert isinstance(at.value, KeyboardInterrupt)


def test_signals_are_as_before_after_a_run():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    quietly(plain_learner(small_task()), small_task(), replace(EVERYTHING, epochs=1))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_run_in_another_thread_leaves_signals_alone():
    found = []

    def run():
        found.append(quietly(plain_learner(small_task()), small_task(), EVERYTHING))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    expected = quietly(plain_learner(small_task()), small_task(), EVERYTHING)
    assert found[0].repeatable() == expected.repeatable()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("balance", ["none", "sampler"])
def test_every_kind_of_run_resumes_exactly(tmp_path, optimizer, precision, balance):
    changes = {"optimizer": optimizer, "precision": precision, "balance": balance}
    recipe = replace(EVERYTHING, epochs=3, selection="last", patience=None, **changes)
    task = small_task()
    expected = quietly(plain_learner(task, backbone=Noisy), task, recipe, folder=tmp_path / "a")
    for step in (4, 3):  # the second counts from where the first stopped
        learner = interrupting(plain_learner(task, backbone=Noisy), step)
        with pytest.raises(Interrupted):
            quietly(learner, task, recipe, folder=tmp_path / "b")
    found = quietly(plain_learner(task, backbone=Noisy), task, recipe, folder=tmp_path / "b")
    assert found.repeatable() == expected.repeatable()


@pytest.mark.parametrize("calls", [(4, 3), (0, 10), (13, 0)])
def test_rounds_of_steps_across_epochs_resume_exactly(tmp_path, calls):
    recipe = replace(EVERYTHING, epochs=4, evaluate_every_steps=5, drop_last=True, patience=3)
    task = small_task()
    expected = quietly(memory_learner(task), task, recipe, folder=tmp_path / "a")
    assert expected.setup["recipe"]["evaluate_every_steps"] == 5
    assert len(expected.epochs) == 4  # 20 steps
    for step in calls:
        with pytest.raises(Interrupted):
            quietly(interrupting(memory_learner(task), step), task, recipe, folder=tmp_path / "b")
    learner = interrupting(memory_learner(task, seed=3), 1, verb="answer")
    with pytest.raises(Interrupted):  # and once in the middle of a validation
        quietly(learner, task, recipe, folder=tmp_path / "b")
    found = quietly(memory_learner(task), task, recipe, folder=tmp_path / "b")
    assert found.repeatable() == expected.repeatable()


def test_python_and_numpy_draws_resume_too(tmp_path):
    import numpy

    task, recipe = small_task(), replace(EVERYTHING, epochs=2, patience=None)

    def noisy(learner):
        inner = learner.loss
        learner.loss = lambda batch: (
            inner(batch)
            * (1 + random.random() + random.gauss() + numpy.random.rand() + numpy.random.randn())
        )
        return learner

    expected = quietly(noisy(plain_learner(task)), task, recipe, folder=tmp_path / "whole")
    with pytest.raises(Interrupted):
        quietly(
            interrupting(noisy(plain_learner(task)), 6), task, recipe, folder=tmp_path / "parts"
        )
    found = quietly(noisy(plain_learner(task)), task, recipe, folder=tmp_path / "parts")
    assert found.repeatable() == expected.repeatable()


def test_the_callers_random_numbers_are_not_disturbed():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    quietly(
        plain_learner(small_task(), backbone=Noisy), small_task(), replace(EVERYTHING, epochs=1)
    )
    torch.manual_seed(5)
    learner = plain_learner(small_task(), backbone=Noisy)
    torch.manual_seed(5)
    quietly(learner, small_task(), replace(EVERYTHING, epochs=1))
    assert torch.equal(torch.rand(3), expected)


def test_the_same_call_again_returns_the_finished_record_and_its_weights(tmp_path):
    task, recipe = small_task(), replace(EVERYTHING, epochs=2, patience=None)
    first = memory_learner(task)
    record = quietly(first, task, recipe, folder=tmp_path)
    second = memory_learner(task, seed=9)
    second.loss = None  # it must not train
    assert quietly(second, task, recipe, folder=tmp_path).to_json() == record.to_json()
    pairs = zip(first.model.state_dict().items(), second.model.state_dict().items(), strict=True)
    assert all(name == other and torch.equal(a, b) for (name, a), (other, b) in pairs)


def test_a_field_that_recipes_have_got_since_counts_as_its_default(tmp_path):
    task, recipe = small_task(), replace(EVERYTHING, epochs=1, patience=None)
    quietly(memory_learner(task), task, recipe, folder=tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["setup"]["recipe"].pop("drop_last") is False
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert quietly(memory_learner(task), task, recipe, folder=tmp_path).seconds == record["seconds"]
    with pytest.raises(UserError, match=r"recipe\.drop_last was false, is true now"):
        quietly(memory_learner(task), task, replace(recipe, drop_last=True), folder=tmp_path)


def test_a_run_in_memory_comes_to_the_same_as_one_in_a_folder(short):
    inside = quietly(memory_learner(small_task()), small_task(), SHORT).repeatable()
    assert inside["weights_sha256"] is None
    assert inside | {"weights_sha256": short["weights_sha256"]} == short
