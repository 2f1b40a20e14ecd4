"""A classifier in a folder: the same predictions, no pickle, whole or not at all."""

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from torch import nn

import hma.io.tensor_files
from hma import CheckpointError
from hma.errors import UserError
from hma.estimator import MemoryClassifier, storage
from hma.io.json_files import read_json, write_json

TABLE = load_iris(as_frame=True).data
NAMES = np.array(["setosa", "versicolor", "virginica"])[load_iris().target]
FEW = {"max_epochs": 3, "random_state": 0}


@pytest.fixture(scope="module")
def model():
    options = {"class_weight": {"setosa": 2.0}, "hidden": (16, 8), "early_stopping": True}
    return MemoryClassifier(**FEW, **options).fit(TABLE, pd.Series(NAMES))


@pytest.fixture
def no_pickle(monkeypatch):
    import pickle

    import torch

    def refuse(*arguments, **options):
        raise AssertionError("pickle was used")

    for module, name in [(pickle, "loads"), (pickle, "load"), (torch, "load"), (torch, "save")]:
        monkeypatch.setattr(module, name, refuse)


@pytest.mark.usefixtures("no_pickle")
def test_a_loaded_classifier_is_the_saved_one(model, tmp_path):
    model.save(tmp_path / "new" / "folder")
    loaded = MemoryClassifier.load(tmp_path / "new" / "folder")
    np.testing.assert_array_equal(loaded.predict_proba(TABLE), model.predict_proba(TABLE))
    np.testing.assert_array_equal(loaded.predict(TABLE), model.predict(TABLE))
    assert loaded.get_params() == model.get_params()
    assert loaded.explain(TABLE[:3]).queue_ids.tolist() == (
        model.explain(TABLE[:3]).queue_ids.tolist()
    )
    assert loaded.loss_curve_ == model.loss_curve_
    assert loaded.validation_curve_ == model.validation_curve_
    with pytest.raises(UserError, match="X has other columns than in fit: it lacks"):
        loaded.predict(TABLE[TABLE.columns[1:]])


def test_without_a_linear_part_none_is_loaded(tmp_path):
    model = MemoryClassifier(linear=False, **FEW).fit(TABLE, NAMES)
    model.save(tmp_path)
    loaded = MemoryClassifier.load(tmp_path)
    assert loaded.linear_ is None
    np.testing.assert_array_equal(loaded.predict_proba(TABLE), model.predict_proba(TABLE))


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_file_beside_the_model_is_refused(model, tmp_path, damage):
    model.save(tmp_path)
    (path,) = tmp_path.glob("model-*/beside.safetensors")
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(CheckpointError, match=r"beside\.safetensors"):
        MemoryClassifier.load(tmp_path)


def test_the_folder_holds_json_and_safetensors_only(model, tmp_path):
    model.save(tmp_path)
    found = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {".json", ".safetensors", ""}  # the last of them is empty: it is held by saves


@pytest.mark.parametrize(
    "y",
    [NAMES == "setosa", load_iris().target * 2 - 1, load_iris().target / 1.0, NAMES.astype("U")],
    ids=["bool", "int", "float", "text"],
)
def test_classes_come_back_with_their_type(y, tmp_path):
    model = MemoryClassifier(max_epochs=1, standardize=False).fit(TABLE.to_numpy(), y)
    model.save(tmp_path)
    loaded = MemoryClassifier.load(tmp_path)
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    np.testing.assert_array_equal(loaded.predict(TABLE.to_numpy()), model.predict(TABLE.to_numpy()))


def test_learning_goes_on_after_loading(tmp_path):
    x, y = TABLE.to_numpy(), NAMES
    model = MemoryClassifier(random_state=0).partial_fit(x[::2], y[::2], classes=np.unique(y))
    model.save(tmp_path)
    loaded = MemoryClassifier.load(tmp_path)
    model._optimizer = None  # its running averages are not saved
    for one in (model, loaded):
        one.partial_fit(x[1::2], y[1::2])
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    assert loaded.rows_seen_ == 150


def test_an_existing_classifier_is_replaced_only_if_told(model, tmp_path):
    model.save(tmp_path)
    other = MemoryClassifier(**FEW).fit(TABLE, NAMES)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        other.save(tmp_path)
    (tmp_path / "model-of-mine").mkdir()
    other.save(tmp_path, overwrite=True)
    loaded = MemoryClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(TABLE), other.predict_proba(TABLE))
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2  # one is not ours


@pytest.mark.parametrize("moment", ["weights", "manifest", "description"])
def test_a_full_disk_leaves_the_classifier_that_was_there(model, tmp_path, monkeypatch, moment):
    model.save(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    other = MemoryClassifier(**FEW).fit(TABLE, NAMES)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    if moment == "weights":
        monkeypatch.setattr(hma.io.tensor_files, "save_file", full)
    elif moment == "manifest":
        monkeypatch.setattr(Path, "write_bytes", full)
    else:
        monkeypatch.setattr(storage, "write_json", full)
    with pytest.raises((UserError, OSError), match="No space left"):
        other.save(tmp_path, overwrite=True)
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before
    loaded = MemoryClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(TABLE), model.predict_proba(TABLE))


def test_a_process_killed_while_cleaning_up_leaves_the_new_classifier(model, tmp_path, monkeypatch):
    model.save(tmp_path)
    other = MemoryClassifier(**FEW).fit(TABLE, NAMES)

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        other.save(tmp_path, overwrite=True)
    monkeypatch.undo()
    loaded = MemoryClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(TABLE), other.predict_proba(TABLE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:50], "estimator.json is damaged"),
        (lambda text: "[1]", "it must be an object"),
        (lambda text: text.replace('"mean_": [\n      5', '"mean_": [\n      6'), "its own hash"),
        (lambda text: text.replace('"virginica"\n', '"virginica", "x"\n'), "its own hash"),
    ],
)
def test_a_damaged_description_is_named(model, tmp_path, change, message):
    model.save(tmp_path)
    target = tmp_path / "estimator.json"
    text = target.read_text()
    target.write_text(change(text))
    assert target.read_text() != text
    with pytest.raises(CheckpointError, match=message):
        MemoryClassifier.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "has format 9, this hma reads"),
        ({"classes": None}, "is damaged: classes must be an object, got None"),
        ({"options": {"heads": 4, "hidden": [8], "class_weight": None}}, "is damaged: TypeError"),
        ({"model": "../model-0"}, "it names no model"),
        ({"classes": {"dtype": "<U10", "names": list("abcd")}}, "it has 4 classes"),
        ({"scaler": {"mean_": [1.0]}}, "is damaged: KeyError"),
    ],
)
def test_a_description_of_something_else_is_named(model, tmp_path, change, message):
    model.save(tmp_path)
    target = tmp_path / "estimator.json"
    write_json(target, read_json(target, dict) | change, sealed=True)
    with pytest.raises(CheckpointError, match=message):
        MemoryClassifier.load(tmp_path)


def test_a_description_without_its_seal_is_damaged(model, tmp_path):
    model.save(tmp_path)
    target = tmp_path / "estimator.json"
    write_json(target, read_json(target, dict))
    with pytest.raises(CheckpointError, match=r"estimator.json is damaged: it lacks its own hash"):
        MemoryClassifier.load(tmp_path)


def test_a_diverged_classifier_is_saved_with_its_curve(model, tmp_path):
    other = deepcopy(model)
    other.loss_curve_ = [1.0, float("nan")]
    other.save(tmp_path)
    np.testing.assert_array_equal(MemoryClassifier.load(tmp_path).loss_curve_, [1.0, np.nan])


def test_a_folder_without_a_classifier_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"holds no estimator: it has no estimator\.json"):
        MemoryClassifier.load(tmp_path)


def test_what_cannot_be_saved_is_refused_and_nothing_is_written(tmp_path):
    x, y = TABLE.to_numpy(), NAMES
    own = MemoryClassifier(nn.Linear(4, 8), **FEW).fit(x, y)
    with pytest.raises(UserError, match="save writes a classifier on the built-in MLP"):
        own.save(tmp_path / "a")
    random = MemoryClassifier(max_epochs=1, random_state=np.random.RandomState(0)).fit(x, y)
    with pytest.raises(UserError, match="random_state must be a number, text or None to be saved"):
        random.save(tmp_path / "b")
    with pytest.raises(NotFittedError):
        MemoryClassifier().save(tmp_path / "c")
    assert not list(tmp_path.iterdir())


def test_the_description_is_readable(model, tmp_path):
    model.save(tmp_path)
    description = json.loads((tmp_path / "estimator.json").read_text())
    assert description["classes"]["names"] == ["setosa", "versicolor", "virginica"]
    assert description["feature_names"] == TABLE.columns.tolist()
    assert description["options"]["class_weight"] == [["setosa", 2.0]]
