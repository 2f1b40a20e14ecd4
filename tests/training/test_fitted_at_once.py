"""A run without steps: fitted, tested, recorded and loaded as every other."""

import math

import pytest
import sklearn
import torch
from training_cases import quietly, rows, small_task

from hma.data import InMemory, Task
from hma.io.files import FileError
from hma.methods.simple import NoSimpleRowError, boosting, kernel, logistic, neighbours
from hma.paper.rivals import cache, forest, prototypes
from hma.targets import Classes
from hma.training import Recipe, Record
from hma.training.run_folder import load_weights

RECIPE = Recipe(epochs=3)
METHODS = {
    "logistic": logistic(),
    "neighbours": neighbours(),
    "boosting": boosting(turns=(2, 4)),
    "forest": forest(leaves=(5,)),
    "prototypes": prototypes(),
    "kernel": kernel(),
    "cache": cache(strengths=(0.3,)),
}


def bare(task: Task) -> Task:
    """The task without its rows, as a run folder builds it to load weights."""
    none = InMemory(torch.empty(0), torch.empty(0, dtype=torch.long))
    parts = {"train": none, "validation": none, "tests": {}}
    return Task(**{**task.__dict__, **parts})


def logits(learner, task):
    with torch.no_grad():
        return learner.predict(task.tests["near"].batch(torch.arange(50)))


@pytest.mark.parametrize("row", METHODS)
def test_weights_load_into_a_learner_that_never_saw_a_row(row, tmp_path):
    task = small_task()
    learner = METHODS[row](task, 0)
    record = quietly(learner, task, RECIPE, folder=tmp_path)
    fresh = METHODS[row](bare(task), 0)
    load_weights(fresh, tmp_path / "weights.safetensors", record.weights_sha256, "")
    torch.testing.assert_close(logits(fresh, task), logits(learner, task), rtol=0, atol=0)


@pytest.mark.parametrize("row", METHODS)
def test_the_same_call_again_returns_the_record_and_the_weights(row, tmp_path):
    task = small_task()
    learner = METHODS[row](task, 0)
    record = quietly(learner, task, RECIPE, folder=tmp_path)
    answers = logits(learner, task)
    for again in (learner, METHODS[row](task, 0)):
        before = (tmp_path / "record.json").stat().st_mtime_ns
        assert quietly(again, task, RECIPE, folder=tmp_path).to_json() == record.to_json()
        assert (tmp_path / "record.json").stat().st_mtime_ns == before
        torch.testing.assert_close(logits(again, task), answers, rtol=0, atol=0)


def test_a_run_that_was_killed_before_its_record_is_fitted_again(tmp_path):
    task = small_task()
    record = quietly(logistic()(task, 0), task, RECIPE, folder=tmp_path)
    (tmp_path / "record.json").unlink()
    again = quietly(logistic()(task, 0), task, RECIPE, folder=tmp_path)
    assert again.repeatable() == record.repeatable()


def test_the_record_says_what_was_chosen_and_what_it_came_to(tmp_path):
    task = small_task()
    learner = logistic()(task, 0)
    quietly(learner, task, RECIPE, folder=tmp_path)
    record = Record.read(tmp_path / "record.json")
    held = task.validation
    answers = learner.predict(held.batch(torch.arange(len(held))))
    expected = Classes(3).loss(answers.double(), held.labels).mean().item()
    assert math.isclose(record.measures["validation_loss"], expected, rel_tol=1e-6)
    assert record.measures["fitted_rows"] == 90
    assert record.measures["chosen"]["C"] in (0.003, 0.03, 0.3, 3.0, 30.0)
    right = (answers.argmax(dim=1) == held.labels).double().mean().item()
    assert math.isclose(record.epochs[0]["validation"]["alone"]["accuracy"], right, rel_tol=1e-6)
    assert record.tests.keys() == {"near", "far"}
    assert record.versions["scikit-learn"] == sklearn.__version__
    assert not (tmp_path / "checkpoints").exists()
    assert "NaN" not in (tmp_path / "record.json").read_text()


def test_without_validation_rows_the_choice_in_the_middle_is_taken():
    task = small_task(validation=rows(0, seed=2))
    record = quietly(logistic()(task, 0), task, Recipe(epochs=1, selection="last"))
    assert record.measures == {"fitted_rows": 90, "choice": 2, "chosen": {"C": 0.3}}
    assert record.epochs[0]["validation"] == {}


def test_other_choices_are_another_run(tmp_path):
    task = small_task()
    quietly(logistic()(task, 0), task, RECIPE, folder=tmp_path)
    with pytest.raises(ValueError, match=r"belongs to another run: method\.architecture"):
        quietly(logistic(strengths=(1.0,))(task, 0), task, RECIPE, folder=tmp_path)


def test_weights_of_another_width_are_refused(tmp_path):
    task = small_task()
    record = quietly(neighbours()(task, 0), task, RECIPE, folder=tmp_path)
    wider = Task(**{**bare(task).__dict__, "shape": (7,)})
    path = tmp_path / "weights.safetensors"
    with pytest.raises(FileError, match=r"has shape \(90, 6\) in the file, \(0, 7\) in this model"):
        load_weights(neighbours()(wider, 0), path, record.weights_sha256, "")


def test_a_row_that_cannot_be_fitted_leaves_no_record(tmp_path):
    same = InMemory(torch.randn(20, 6), torch.zeros(20, dtype=torch.long))
    task = small_task(train=same)
    with pytest.raises(NoSimpleRowError, match="at least two classes"):
        quietly(logistic()(task, 0), task, RECIPE, folder=tmp_path)
    assert not (tmp_path / "record.json").exists()


def test_progress_counts_the_choices():
    told = []

    class Told:
        def begin(self, title, total, done=0):
            told.append((title, total))

        def update(self, done, note=""):
            told.append(done)

        def say(self, message):
            told.append(message)

        def end(self):
            told.append("end")

    task = small_task()
    quietly(logistic()(task, 0), task, RECIPE, progress=Told())
    assert told == [("clouds", 5), 1, 2, 3, 4, 5, "end"]
