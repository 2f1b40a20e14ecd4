"""Numbers, yes/no labels and soft labels, from tables and arrays to a task and back."""

import json
from itertools import chain

import numpy as np
import pandas as pd
import pytest
import torch

from hma.data import open_source, preparation_from_json, prepare, stream
from hma.errors import UserError
from hma.targets import Classes, Number, SoftClasses, YesNo

ROWS = 60
VALUES = np.random.default_rng(0).normal(size=(ROWS, 2))


def table(folder, name="rows.csv", **labels):
    frame = pd.DataFrame({"a": VALUES[:, 0], "b": VALUES[:, 1]} | labels)
    path = folder / name
    frame.to_parquet(path) if name.endswith(".parquet") else frame.to_csv(path, index=False)
    return path


def arrays(folder, y, x=VALUES):
    np.savez(folder / "rows.npz", x=x, y=y)
    return folder / "rows.npz"


def again(preparation):
    return preparation_from_json(json.loads(json.dumps(preparation.to_json())))


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.npz"])
def test_a_number_is_standardised_by_the_training_rows(tmp_path, name):
    y = 1e9 + VALUES[:, 0] * 3
    if name == "rows.npz":
        source = open_source(arrays(tmp_path, y), task="regression")
    else:
        source = open_source(table(tmp_path, name, y=y), target="y", task="regression")
    prepared = prepare(source, seed=3)
    task = prepared.task
    train = y[prepared.places["train"]]
    assert task.classes == ("y",)
    assert isinstance(task.target, Number)
    np.testing.assert_allclose([task.target.centre, task.target.scale], [train.mean(), train.std()])
    np.testing.assert_array_equal(task.train.labels, train)  # not rounded to float32
    assert again(prepared.preparation) == prepared.preparation
    found = torch.cat([batch.y for batch in stream(again(prepared.preparation), source, 7)])
    np.testing.assert_array_equal(found, y)


def test_every_split_has_its_share_of_small_and_large_numbers(tmp_path):
    y = np.arange(ROWS) ** 2.0
    path = table(tmp_path, y=y)
    prepared = prepare(open_source(path, target="y", task="regression"), seed=0)
    for name, share in (("train", 0.65), ("validation", 0.15), ("test", 0.2)):
        rows = np.array(prepared.places[name])
        assert abs((rows < ROWS // 2).sum() - share * ROWS / 2) <= 3
    assert prepared.task.facts["split"].startswith("stratified by tenth of the rows")
    assert sorted(chain(*prepared.places.values())) == list(range(ROWS))


def test_rows_without_the_number_can_be_predicted(tmp_path):
    source = open_source(table(tmp_path, y=VALUES[:, 0]), target="y", task="regression")
    preparation = prepare(source, seed=0).preparation
    unlabelled = next(stream(preparation, open_source(table(tmp_path, "new.csv")), 7))
    assert unlabelled.y.isnan().all()
    plainly = open_source(table(tmp_path, y=VALUES[:, 0]), target="y")  # the run knows the task
    np.testing.assert_array_equal(preparation.split(plainly).labels, VALUES[:, 0])


def test_several_columns_are_yes_no_labels_with_missing_ones(tmp_path):
    words = {"u": ["yes", "no", None] * 20, "v": ["TRUE", "0", "1.0", "false"] * 15}
    source = open_source(table(tmp_path, **words), target=("u", "v"))
    prepared = prepare(source, seed=0)
    assert prepared.task.target == YesNo(2)
    assert prepared.task.classes == ("u", "v")
    assert prepared.task.shape == (2,)
    expected = np.stack([[1, 0, np.nan] * 20, [1, 0, 1, 0] * 15], axis=1)
    np.testing.assert_array_equal(prepared.task.train.labels, expected[prepared.places["train"]])
    assert again(prepared.preparation) == prepared.preparation
    swapped = open_source(table(tmp_path, **words), target=("v", "u"))
    with pytest.raises(UserError, match=r"prepared for the labels 'u', 'v'; give the same"):
        prepared.preparation.split(swapped)


def test_arrays_of_labels_are_yes_no_unless_soft_ones_are_asked_for(tmp_path):
    half = np.where(np.arange(ROWS)[:, None] % 2, [1.0, 0.0, 0.0], [0.0, 0.0, 1.0])
    assert prepare(open_source(arrays(tmp_path, half)), seed=0).task.target == YesNo(3)
    soft = prepare(open_source(arrays(tmp_path, half / 2 + 1 / 6), task="soft"), seed=0)
    assert soft.task.target == SoftClasses(3)
    np.testing.assert_allclose(
        soft.task.train.labels, (half / 2 + 1 / 6)[soft.places["train"]], rtol=1e-6
    )
    assert again(soft.preparation) == soft.preparation
    classes = prepare(open_source(arrays(tmp_path, np.arange(ROWS) % 2)), seed=0)
    assert classes.task.target == Classes(2)


def test_columns_of_shares_are_soft_labels(tmp_path):
    share = np.linspace(0, 1, ROWS)
    path = table(tmp_path, p=share, q=1 - share)
    task = prepare(open_source(path, target=["p", "q"], task="soft"), seed=0).task
    assert (task.target, task.classes) == (SoftClasses(2), ("p", "q"))
    assert torch.allclose(task.train.labels.sum(1), torch.ones(len(task.train)))


def test_texts_and_graphs_may_have_a_number_too(tmp_path):
    lines = [json.dumps({"text": "so", "label": place / 2}) for place in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    source = open_source(tmp_path / "rows.jsonl", task="regression")
    assert source.label_kind == "number"
    assert source.labels[3] == "1.5"


REGRESSION = {"task": "regression"}
NUMBERS = [str(place) for place in range(ROWS)]


@pytest.mark.parametrize(
    ("labels", "asked", "message"),
    [
        ({"y": ["w1", "2"] * 30}, REGRESSION,
         r"'y' of rows.csv must hold finite numbers, got 'w1' in row 0 .* in 30 of 60 rows"),
        ({"y": [*NUMBERS[1:], "inf"]}, REGRESSION, r"finite numbers, got 'inf' in row 59"),
        ({"y": [*NUMBERS[1:], "1e999"]}, REGRESSION, r"finite numbers, got '1e999'"),
        ({"y": ["3.0"] * ROWS}, REGRESSION, r"is 3 in all 60 rows, so there is nothing"),
        ({"y": [*NUMBERS[1:], None]}, REGRESSION, r"no label in 1 of 60 rows, first in row 59"),
        ({"y": ["0", "1"] * 30, "z": [None] * ROWS}, {"target": ("y", "z")},
         r"'z' in .* has no label in any of 60 rows"),
        ({"y": ["0", "1"] * 30, "z": ["1", "maybe"] * 30}, {"target": ("y", "z")},
         r"'z' in .* must hold 1 or 0, .* got 'maybe' in row 1 .* 30 of 60"),
        ({"y": [0.5] * ROWS, "z": [0.75] * ROWS}, {"target": ("y", "z"), "task": "soft"},
         r"sum to 1 in each row, got \[0.5, 0.75\] in row 0"),
        ({"y": [0.5] * ROWS, "z": ["a"] * ROWS}, {"target": ("y", "z"), "task": "soft"},
         r"finite numbers, got 'a' in row 0 .* 60 of 60 rows"),
        ({"y": NUMBERS, "z": NUMBERS}, {"target": ("y", "z"), "task": "regression"},
         r"task 'regression' needs one target column, got 2"),
        ({"y": NUMBERS}, {"task": "soft"}, r"task 'soft' needs a column for each class, got 1"),
        ({"y": NUMBERS}, {"task": "rank"}, r"task must be one of 'classes', 'regression', 'soft'"),
        ({"y": NUMBERS}, {"target": ("y", "y")}, r"target names 'y' more than once"),
        ({"y": NUMBERS}, REGRESSION | {"target": None}, r"needs a target; name its column"),
        ({"y": NUMBERS}, {}, r"a quantity rather than a class\? Then use --task regression"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_learned_are_named_in_one_line(tmp_path, labels, asked, message):
    path = table(tmp_path, **labels)
    with pytest.raises(UserError, match=message) as found:
        prepare(open_source(path, **{"target": "y"} | asked), seed=0)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        (np.full((ROWS, 3), 0.4), "soft", r"sum to 1 in each row, got \[0.4, 0.4, 0.4\]"),
        (np.full((ROWS, 3), 0.4), None, r"'y0' in y of rows.npz must hold 1 or 0"),
        (np.full(ROWS, np.nan), "regression", r"has no label in 60 of 60 rows"),
        (np.full((ROWS, 2), np.nan), None, r"'y0' in .* has no label in any of 60 rows"),
    ],
)
def test_arrays_that_cannot_be_learned_are_named(tmp_path, y, task, message):
    with pytest.raises(UserError, match=message):
        prepare(open_source(arrays(tmp_path, y), task=task), seed=0)


def test_built_in_data_has_a_task_of_its_own():
    with pytest.raises(UserError, match="digits has classes of its own; leave task out"):
        open_source("digits", task="regression")
