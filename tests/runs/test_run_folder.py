"""A run folder: continued after a kill, checked when it is read, left alone once finished."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import hma
from hma.attention.config import HMAConfig
from hma.data import PreparationOptions
from hma.errors import UserError
from hma.io.files import UNFINISHED
from hma.io.json_files import read_json, write_json
from hma.runs.deployment import MEMORY, PLAIN
from hma.runs.folder import Run
from hma.runs.options import RunOptions
from hma.runs.train import train
from hma.training import Recipe
from hma.training import progress as progress_module
from hma.training.identity import differences
from hma.vote.config import VoteConfig

RECIPE = Recipe(epochs=2, batch_size=16)
SMALL = HMAConfig(queue_size=8, slots_per_class=1, label_dim=4, num_heads=1, dropout=0.0)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    draw = np.random.default_rng(0)
    y = draw.integers(2, size=60)
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, x=draw.normal(size=(60, 3)) + y[:, None], y=y)
    return RunOptions(source=str(path), backbone="mlp", config=SMALL, recipe=RECIPE)


@pytest.fixture(scope="module")
def finished(options, tmp_path_factory):
    return train(options, tmp_path_factory.mktemp("run"), accelerator="cpu").folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def content(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def flip(path, place=-5):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_folder_whose_first_file_was_being_written_is_continued(options, tmp_path):
    left = tmp_path / f"{UNFINISHED}killed"
    left.mkdir()
    (left / ".lock").touch()
    (left / "run.json").write_text('{"schema"')
    run = train(replace(options, recipe=replace(RECIPE, epochs=1)), tmp_path, accelerator="cpu")
    assert len(run.record(MEMORY).epochs) == 1
    assert not left.exists()


def test_a_folder_with_something_else_is_refused(options, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and is not a run"):
        train(options, tmp_path)
    assert list(content(tmp_path)) == ["notes.txt"]


def test_a_finished_run_is_left_as_it_is_by_the_same_command(options, copy):
    before = content(copy)
    train(options, copy, accelerator="cpu")
    assert content(copy) == before


def test_the_weights_of_the_memory_are_on_disk_once(finished):
    weights = finished / "memory" / "weights.safetensors"
    (saved,) = (finished / "memory" / "model").glob("*.safetensors")
    assert os.path.samefile(weights, saved)
    assert hma.load(finished / "memory" / "model", Run.open(finished)._fresh()).num_labels == 2


def test_a_copied_run_needs_no_links(copy, finished):
    (saved,) = (copy / "memory" / "model").glob("*.safetensors")
    assert not os.path.samefile(copy / "memory" / "weights.safetensors", saved)
    both = [Run.open(folder).learner(MEMORY).module.state_dict() for folder in (copy, finished)]
    assert all(torch.equal(value, both[1][name]) for name, value in both[0].items())


def test_a_model_that_is_not_that_of_the_record_is_saved_again(options, copy):
    before = content(copy)
    (weights,) = (copy / "memory" / "model").glob("*.safetensors")
    flip(weights)
    run = train(options, copy, accelerator="cpu")
    run.learner(MEMORY)
    assert content(copy)["memory/record.json"] == before["memory/record.json"]


def test_other_rows_under_the_same_name_leave_a_finished_run_untouched(options, copy, tmp_path):
    draw = np.random.default_rng(1)
    rows = {"x": draw.normal(size=(60, 3)) + 1e6, "y": draw.integers(2, size=60)}
    kept = shutil.copy(options.source, tmp_path / "kept.npz")
    before = content(copy)
    try:
        np.savez(options.source, **rows)
        with pytest.raises(UserError, match="belongs to another run"):
            train(options, copy, accelerator="cpu")
    finally:
        shutil.copy(kept, options.source)
    assert content(copy) == before


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("run.json", lambda run: run),
        ("preparation.json", lambda run: run.preparation),
        ("places.json", lambda run: run.places),
        ("plain/weights.safetensors", lambda run: run.learner(PLAIN)),
    ],
)
def test_a_changed_file_is_refused_by_its_hash(copy, name, use):
    path = copy / name
    if path.suffix == ".json":
        digit = next(one for one in "2468" if f" {one}" in path.read_text())
        path.write_text(path.read_text().replace(f" {digit}", f" {int(digit) + 1}", 1))
    else:
        flip(path)
    with pytest.raises(UserError, match=r"does not match its (own|recorded) hash") as caught:
        use(Run.open(copy))
    assert str(caught.value).startswith(f"{path} is damaged: ")
    assert str(caught.value).endswith("; train again in a new folder")


def test_weights_of_another_shape_are_named(copy):
    path, other = copy / "plain" / "record.json", copy / "memory" / "weights.safetensors"
    write_json(path, read_json(path, dict) | {"weights_sha256": None})
    shutil.copy(other, copy / "plain" / "weights.safetensors")
    with pytest.raises(UserError, match=r"weights\.safetensors does not fit: .*train again"):
        Run.open(copy).learner(PLAIN)


def test_a_folder_removed_while_training_is_noticed_at_the_end_of_the_epoch(options, tmp_path):
    folder, seen = tmp_path / "run", []

    class Removing(progress_module.SilentProgress):
        def update(self, done, note=""):
            seen.append(done)
            shutil.rmtree(folder, ignore_errors=True)

    long = replace(options, recipe=replace(RECIPE, epochs=50))
    with pytest.raises(UserError, match="was removed while a run was training in it"):
        train(long, folder, compare=False, accelerator="cpu", progress=Removing())
    assert max(seen) <= 3, "an epoch has three steps"


# -------------------------------------------------------------------------------- its options


def test_options_come_back(options, tmp_path):
    full = replace(options, preparation=PreparationOptions(categorical=("a", "b")), seed=3)
    full.write(tmp_path / "run.json")
    assert RunOptions.read(tmp_path / "run.json") == full


def test_an_option_that_is_not_there_takes_its_default(options, tmp_path):
    path = tmp_path / "run.json"
    options.write(path)
    values = read_json(path, dict)
    del values["prompts"], values["recipe"]["lr"], values["data_root"]
    write_json(path, values, sealed=True)
    assert RunOptions.read(path) == options


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 99}, "another version of hma (schema 99, this one reads"),
        ({"schema": "2"}, "schema must be a whole number"),
        ({"colour": "red"}, "has a field that is not known: 'colour'"),
        ({"backbone": None}, "it names no backbone"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
        ({"config": {"queue_size": "x"}}, "queue_size must be"),
        ({"config": 3}, "config must be an object, got 3"),
        ({"memory": "votes"}, "memory must be one of 'vote', 'hma', got 'votes'; did you mean"),
        ({"memory": "vote"}, "config has a field that is not known: 'alone_share'"),
        ({"recipe": {"epochs": -1}}, "epochs"),
        ({"tuning": "none"}, "tuning must be one of 'full', 'part', got 'none'"),
        ({"preparation": {"categorical": 3}}, "categorical must be a list, got 3"),
    ],
)
def test_options_that_are_none_are_one_line(options, tmp_path, change, said):
    path = tmp_path / "run.json"
    write_json(path, options.to_json() | change, sealed=True)
    with pytest.raises(UserError) as caught:
        RunOptions.read(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_folder_with_an_encoder_is_stored_from_the_root_on(options, tmp_path, monkeypatch):
    (tmp_path / "encoder").mkdir()
    monkeypatch.chdir(tmp_path)
    found = replace(options, backbone="hf:encoder")
    assert found.backbone == f"hf:{tmp_path / 'encoder'}"
    assert found.preparation.encoder == str(tmp_path / "encoder")
    assert replace(options, backbone="hf:in/the-cache").backbone == "hf:in/the-cache"


def test_runs_are_compared_in_one_way(options):
    other = replace(options, seed=1, recipe=replace(RECIPE, lr=0.5, checkpoint_every_seconds=7.0))
    found = json.loads(json.dumps(options.to_json()))
    del found["recipe"]["drop_last"]  # recipes did not have it then
    assert differences(found, json.loads(json.dumps(other.to_json()))) == [
        f"recipe.lr was {RECIPE.lr}, is 0.5 now",
        "seed was 0, is 1 now",
    ]


def test_another_memory_is_one_difference_and_not_one_for_each_of_its_fields(options):
    voting = replace(options, config=VoteConfig())
    assert differences(options.to_json(), voting.to_json()) == ['memory was "hma", is "vote" now']
    assert differences(voting.to_json(), options.to_json()) == ['memory was "vote", is "hma" now']
