"""Checkpoints: damage is noticed, other runs are refused, a full disk harms nothing there is."""

import errno
import json
import shutil
import sys
from dataclasses import replace

import pytest
import torch
from safetensors import SafetensorError
from test_resume import interrupting
from training_cases import (
    EVERYTHING,
    MEMORY,
    Noisy,
    memory_learner,
    plain_learner,
    quietly,
    rows,
    small_task,
)

from hma.errors import UserError
from hma.io import tensor_files
from hma.io.files import explain_write_errors
from hma.io.json_files import SEAL
from hma.training import Interrupted, Record
from hma.training import checkpoints as checkpoints_module
from hma.training import record as record_module
from hma.training.checkpoints import Checkpoint, Checkpoints
from hma.training.run_folder import RunFolder

EVERY_THIRD = {"checkpoint_every_seconds": 1e9, "checkpoint_every_steps": 3}
RECIPE = replace(EVERYTHING, epochs=4, patience=None, **EVERY_THIRD)
"""24 steps, a checkpoint after every third."""


OPTIONS = {"source": "a.csv"}


def stopped_after(folder, steps):
    with pytest.raises(Interrupted):
        train_in(folder, learner=interrupting(memory_learner(small_task()), steps - 1))
    return RunFolder(folder).checkpoints


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of all tests here, undisturbed."""
    folder = tmp_path_factory.mktemp("whole")
    quietly(memory_learner(small_task()), small_task(), RECIPE, folder=folder, resolved=OPTIONS)
    return folder


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """The same run, stopped after ten steps."""
    folder = tmp_path_factory.mktemp("part")
    stopped_after(folder, 10)
    return folder


def expect_same(found, whole):
    assert found.repeatable() == Record.read(whole / "record.json").repeatable()


def train_in(folder, **changes):
    given = {"task": small_task(), "recipe": RECIPE, "resolved": OPTIONS} | changes
    learner = changes.get("learner") or memory_learner(given["task"])
    return quietly(**given | {"learner": learner, "folder": folder})


def test_what_is_written_is_read_back_bit_for_bit(tmp_path):
    store = Checkpoints(tmp_path / "new")
    shared = torch.randn(4)
    tensors = {
        "weight": torch.randn(3, 2).T,
        "tied": shared,
        "tied too": shared,
        "half": torch.randn(2).bfloat16(),
        "none": torch.empty(0, 5),
        "count": torch.tensor(7),
        "mask": torch.tensor([True, False]),
    }
    store.write(Checkpoint(12, tensors, {"loss": 0.1, "score": float("-inf"), "list": [1, None]}))
    found = store.latest()
    assert found.step == 12
    assert found.values == {"loss": 0.1, "score": None, "list": [1, None]}
    assert found.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found.tensors[name].dtype == value.dtype
        assert torch.equal(found.tensors[name], value), name


def test_something_that_is_no_tensor_cannot_be_saved(tmp_path):
    with pytest.raises(UserError, match="note holds a str, and only tensors can be saved"):
        Checkpoints(tmp_path).write(Checkpoint(1, {"note": "text"}, {}))
    assert list(tmp_path.iterdir()) == []


def test_a_crash_while_a_step_is_written_again_leaves_what_it_was(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path)
    store.write(Checkpoint(5, {"x": torch.zeros(1)}, {"after": 0}))

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    for after in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints_module, "write_json", killed)
            with pytest.raises(KeyboardInterrupt):
                store.write(Checkpoint(5, {"x": torch.full((1,), 9.0)}, {}))
        found = store.latest()
        assert (found.tensors["x"].item(), found.values) == (after - 1, {"after": after - 1})
        store.write(Checkpoint(5, {"x": torch.full((1,), float(after))}, {"after": after}))
        assert store.latest().tensors["x"].item() == after
        assert len(list(tmp_path.iterdir())) == 2
    store.clear()
    assert not tmp_path.exists()


def test_the_last_two_are_kept(tmp_path):
    store = Checkpoints(tmp_path)
    for step in (5, 10, 15, 20):
        store.write(Checkpoint(step, {"x": torch.zeros(1)}, {}))
    assert store.steps() == [15, 20]
    assert len(list(tmp_path.iterdir())) == 4
    store.clear()
    assert not tmp_path.exists()


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_a_number(path):
    text = path.read_text()
    assert '"at": 10' in text
    path.write_text(text.replace('"at": 10', '"at": 11'))


def remove_the_seal(path):
    values = json.loads(path.read_text())
    del values[SEAL]
    path.write_text(json.dumps(values))


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


DAMAGES = [(d, p) for d in (truncate, flip_a_bit, empty, remove) for p in ("json", "safetensors")]


@pytest.mark.parametrize(
    ("damage", "part"), [*DAMAGES, (change_a_number, "json"), (remove_the_seal, "json")]
)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path, damage, part):
    store = Checkpoints(tmp_path)
    for step in (5, 10):
        store.write(Checkpoint(step, {"x": torch.full((50,), float(step))}, {"at": step}))
    damage(tmp_path / f"step-000000010.{part}")
    if (damage, part) == (remove, "json"):  # as after a kill between the two files
        assert store.latest().step == 5
        return
    with pytest.warns(UserWarning, match=r"step 10 is damaged .* the run goes on from step 5"):
        found = store.latest()
    assert (found.step, found.values) == (5, {"at": 5})
    assert store.steps() == [5]


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path, whole):
    store = stopped_after(tmp_path, 16)
    assert store.steps() == [15, 16]
    truncate(store.folder / "step-000000016.safetensors")
    with pytest.warns(UserWarning, match="step 16 is damaged .* goes on from step 15"):
        expect_same(train_in(tmp_path), whole)


def test_with_every_checkpoint_damaged_a_run_starts_again_and_says_so(tmp_path, whole):
    store = stopped_after(tmp_path, 5)
    for path in store.folder.glob("*.json"):
        flip_a_bit(path)
    with pytest.warns(UserWarning, match="is damaged") as caught:
        expect_same(train_in(tmp_path), whole)
    assert "goes on from the beginning" in str(caught[-1].message)


def content(folder):
    found = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")}
    found |= {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.safetensors")}
    return found


OTHERS = {
    "seed": ({"seed": 1}, "seed was 0, is 1 now"),
    "recipe": ({"recipe": replace(RECIPE, lr=0.1)}, "recipe.lr was 0.003, is 0.1 now"),
    "rows": ({"task": small_task(train_rows=91)}, "task.rows.train was 90, is 91 now"),
    "content": (
        {"task": small_task(tests={"near": rows(50, seed=8), "far": rows(50, seed=4)})},
        "task.data_fingerprint was",
    ),
    "method": (
        {"learner": plain_learner(small_task())},
        'method.learner was "WithMemory", is "Erm"',
    ),
    "config": (
        {"learner": memory_learner(small_task(), config=replace(MEMORY, scale="token"))},
        'method.config.scale was "head", is "token" now',
    ),
    "dropout": (
        {"learner": memory_learner(small_task(), backbone=lambda width: Noisy(width, dropout=0.5))},
        "method.architecture was",
    ),
    "resolved": ({"resolved": {"source": "b.csv"}}, 'resolved.source was "a.csv", is "b.csv" now'),
}


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("other", OTHERS)
def test_another_run_is_refused_with_the_differing_fields_named(
    tmp_path, whole, part, other, finished
):
    changes, message = OTHERS[other]
    folder = shutil.copytree(whole if finished else part, tmp_path / "copy")
    before = content(folder)
    with pytest.raises(
        UserError, match=r"belongs to another run: .*Use the same options"
    ) as caught:
        train_in(folder, **changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert content(folder) == before


def test_how_often_to_write_checkpoints_may_change(tmp_path, part):
    folder = shutil.copytree(part, tmp_path / "copy")
    recipe = replace(RECIPE, checkpoint_every_steps=None, checkpoint_every_seconds=5)
    assert train_in(folder, recipe=recipe).epochs


def test_a_run_begun_with_other_versions_goes_on_with_a_warning(tmp_path, part, monkeypatch):
    folder = shutil.copytree(part, tmp_path / "copy")
    module = sys.modules["hma.training.fit"]  # the package has a function of that name
    monkeypatch.setattr(module, "versions", lambda: {"python": "9.9"})
    with pytest.warns(UserWarning, match=r"other versions \(python .* then, 9\.9 now; "):
        train_in(folder)


def test_a_checkpoint_of_a_later_format_is_kept_and_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints_module, "FORMAT", 2)
    Checkpoints(tmp_path).write(Checkpoint(3, {"x": torch.zeros(1)}, {}))
    monkeypatch.undo()
    with pytest.raises(UserError, match="has format 2, this hma reads 1"):
        Checkpoints(tmp_path).latest()
    assert Checkpoints(tmp_path).steps() == [3]


# ------------------------------------------------------------------------------ full disk


NO_SPACE = [
    OSError(errno.ENOSPC, "No space left on device"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", NO_SPACE, ids=["OSError", "SafetensorError"])
def test_no_space_for_a_checkpoint_is_one_clear_error_and_the_one_before_stays(
    tmp_path, whole, part, monkeypatch, error
):
    store = RunFolder(shutil.copytree(part, tmp_path / "copy")).checkpoints
    before = content(store.folder)

    def full(tensors, path, about):
        path.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(tensor_files, "save_file", full)
    with pytest.raises(UserError) as caught:
        train_in(tmp_path / "copy")
    said = str(caught.value)
    assert said.startswith(f"cannot write {store.folder / 'step-000000012.safetensors'}: ")
    assert "No space left on device" in said
    assert said.endswith("free some space and start again")
    assert content(store.folder) == before
    monkeypatch.undo()
    expect_same(train_in(tmp_path / "copy"), whole)


def test_no_space_for_the_record_leaves_a_run_that_can_be_finished(
    tmp_path, whole, part, monkeypatch
):
    folder = shutil.copytree(part, tmp_path / "copy")

    def full(path, values):
        with explain_write_errors(path):
            raise NO_SPACE[0]

    monkeypatch.setattr(record_module, "write_json", full)
    with pytest.raises(UserError, match=r"cannot write .*record\.json: No space left on device"):
        train_in(folder)
    monkeypatch.undo()
    learner = memory_learner(small_task())
    steps = []
    learner.after_step = lambda batch: steps.append(1)
    expect_same(train_in(folder, learner=learner), whole)
    assert not steps, "the last checkpoint is from after the last step"


def test_a_limit_on_the_size_of_files_is_met_like_a_full_disk(processes, tmp_path):
    options = {"epochs": 4, "patience": None} | EVERY_THIRD
    whole, part = tmp_path / "whole", tmp_path / "part"
    processes.start("train", folder=str(whole), **options)
    assert processes.ended() == 0, processes.said()
    learner = interrupting(memory_learner(small_task()), 9)
    with pytest.raises(Interrupted):
        quietly(learner, small_task(), replace(EVERYTHING, **options), folder=part)
    store = RunFolder(part).checkpoints
    before, largest = content(part), 10_000
    assert max(len(each) for each in before.values()) > largest
    processes.start("train", folder=str(part), largest_file=largest, **options)
    assert processes.ended() == 2, processes.said()
    [said] = processes.said().splitlines()
    assert "cannot write" in said
    assert "free some space" in said
    assert content(part) == before
    assert not list(store.folder.glob(".*"))
    processes.start("train", folder=str(part), **options)
    assert processes.ended() == 0, processes.said()
    expect_same(Record.read(part / "record.json"), whole)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file.*see to that and start"):
        train_in(tmp_path / "file" / "run")


# -------------------------------------------------------------------------- the finished run


def test_damaged_weights_of_a_finished_run_are_noticed(tmp_path, whole):
    folder = shutil.copytree(whole, tmp_path / "copy")
    flip_a_bit(folder / "weights.safetensors")
    with pytest.raises(UserError, match=r"is damaged: .*remove .*record.json to train"):
        train_in(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values | {"schema": 99}, "schema 99 was written by a newer hma"),
        (lambda values: values | {"schema": 0}, "a schema from 1 to 1, got 0"),
        (lambda values: {n: v for n, v in values.items() if n != "tests"}, "it lacks tests"),
        (lambda values: values | {"tests": {"near": 3}}, "tests.near must be an object, got 3"),
        (lambda values: values | {"selected_epoch": 99}, "select one of its 4 epochs, got 99"),
        (lambda values: [1], r"it must be an object, got \[1\]"),
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path, whole, change, message):
    record = Record.read(whole / "record.json")
    path = tmp_path / "record.json"
    record.write(path)
    assert Record.read(path) == record
    path.write_text(json.dumps(change(record.to_json())))
    with pytest.raises(UserError, match=message):
        Record.read(path)


def test_a_record_cut_short_is_refused_and_a_missing_one_too(tmp_path):
    path = tmp_path / "record.json"
    with pytest.raises(UserError, match="the run did not finish"):
        Record.read(path)
    path.write_text('{"schema": 1,')
    with pytest.raises(UserError, match=r"record.json is damaged: .*restore it from a copy"):
        Record.read(path)


def test_two_processes_cannot_train_in_one_folder(tmp_path, whole):
    folder = shutil.copytree(whole, tmp_path / "copy")
    with RunFolder(folder).locked(), pytest.raises(UserError, match="another process is training"):
        train_in(folder)
    expect_same(train_in(folder), whole)
