"""Labels as people write them, and the targets that they make."""

import json
from itertools import chain

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hma.data import labelled_rows, open_source, preparation_from_json, prepare, stream
from hma.data.labels import CLASSES, NUMBER, class_names, encode, expect_present, label_text
from hma.errors import UserError
from hma.targets import Classes, Number, SoftClasses, YesNo

ROWS = 60
VALUES = np.random.default_rng(0).normal(size=(ROWS, 2))
REGRESSION = {"task": "regression"}
NUMBERS = [str(place) for place in range(ROWS)]


@given(st.lists(st.integers(-1000, 1000), min_size=1))
def test_numbers_are_ordered_by_value(values):
    assert class_names(str(value) for value in values) == tuple(map(str, sorted(set(values))))


@given(st.lists(st.text(), min_size=1))
def test_encoding_and_naming_are_inverse(labels):
    names = class_names(labels)
    assert [names[place] for place in encode(labels, names).tolist()] == labels


def test_one_word_among_numbers_makes_the_order_alphabetical():
    assert class_names(["9", "10", "none"]) == ("10", "9", "none")


@pytest.mark.parametrize("odd", ["nan", "inf", "1e999"])
def test_words_that_python_reads_as_numbers_without_a_place_are_words(odd):
    assert class_names(["9", "10", odd]) == tuple(sorted(["9", "10", odd]))


def test_markup_is_a_label_like_any_other():
    assert class_names(["<script>alert(1)</script>", "b&b"]) == ("<script>alert(1)</script>", "b&b")


def test_one_class_only_is_refused():
    with pytest.raises(UserError, match=r"all 3 rows have the label 'a'; .* two classes"):
        CLASSES.expect_learnable(["a", "a", "a"], (), "")


def test_no_rows_at_all_are_refused():
    with pytest.raises(UserError, match=r"there are no rows to learn from"):
        CLASSES.expect_learnable([], (), "")


def test_a_class_with_one_row_is_named():
    with pytest.raises(UserError, match=r"class 'lynx' has one row only.* add rows"):
        CLASSES.expect_learnable(["cat", "cat", "lynx", "dog", "dog"], (), "")


def test_many_single_numbers_look_like_a_quantity():
    with pytest.raises(UserError, match=r"3 of 3 classes have one row only.*a quantity"):
        CLASSES.expect_learnable(["0.5", "0.25", "7"], (), "")


@pytest.mark.parametrize("alone", [["60"], ["60", "61"]])
def test_many_numbers_look_like_a_quantity_where_few_are_single(alone):
    ages = [str(age) for age in range(20, 50)] * 2
    with pytest.raises(UserError, match=r"one row only.*use --task regression"):
        CLASSES.expect_learnable(ages + alone, (), "")
    with pytest.raises(UserError, match="one row only") as found:
        CLASSES.expect_learnable(["1", "2", "3"] * 2 + alone, (), "")
    assert "regression" not in str(found.value)


def test_two_single_words_do_not():
    with pytest.raises(UserError, match=r"2 of 3 classes have one row only") as found:
        CLASSES.expect_learnable(["a", "b", "c", "c"], (), "")
    assert "quantity" not in str(found.value)


def test_an_unknown_label_is_named_beside_the_known_ones():
    with pytest.raises(UserError, match=r"label 'wolf' .* 2 of 3 rows; known are 'cat', 'dog'"):
        encode(["cat", "wolf", "wolf"], ("cat", "dog"))


def test_missing_labels_are_counted_and_the_first_rows_named():
    with pytest.raises(
        UserError, match=r"column 'y' has no label in 12 of 20 rows, .* row 0, 1, 2"
    ):
        expect_present(range(12), 20, "column 'y'")


def test_encoding_nothing_gives_an_empty_tensor_of_ids():
    assert encode([], ("a",)).dtype == torch.long


def test_a_numpy_number_is_written_as_a_number():
    import numpy as np

    assert label_text(np.float64(0.5)) == "0.5"
    assert label_text(np.float64(2.0)) == "2"


@pytest.mark.parametrize("cells", [["0", "1.0", "0.0", "1"], ["0.0", "1.0"], ["0", "1"]])
def test_whole_numbers_are_one_class_with_and_without_decimals(tmp_path, cells):
    def written(name, labels):
        lines = [f"{place},{label}" for place, label in enumerate(labels)]
        (tmp_path / name).write_text("\n".join(["a,y", *lines]))
        return open_source(tmp_path / name, target="y")

    prepared = prepare(written("a.csv", cells * 10), seed=0)
    assert prepared.task.classes == ("0", "1")
    later = prepared.preparation.split(written("later.csv", ["1.00", "0", "1"]))
    assert later.labels.tolist() == [1, 0, 1]


def test_words_that_look_like_numbers_stay_apart_among_words():
    names = class_names(["1.0", "1", "1.0a"])
    assert names == ("1", "1.0", "1.0a")
    assert encode(["1.0", "1"], names).tolist() == [1, 0]


def test_leading_zeros_and_large_numbers_stay_apart():
    assert class_names(["007", "7"]) == ("007", "7")
    assert class_names([str(2**60), str(2**60 + 1)]) == (str(2**60), str(2**60 + 1))


def test_a_class_with_one_row_in_each_spelling_can_be_learned():
    CLASSES.expect_learnable(["1", "1.0", "2", "2"], (), "")
    with pytest.raises(UserError, match=r"class '3' has one row only"):
        CLASSES.expect_learnable(["1", "1.0", "3.0"], (), "")


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.npz"])
def test_rows_without_a_label_are_left_out_on_request(tmp_path, name):
    labels = ["0", None, "1"] * 10
    if name == "a.npz":
        y = np.array([np.nan if label is None else float(label) for label in labels])
        np.savez(tmp_path / name, x=np.arange(30.0)[:, None], y=y)
    elif name == "a.csv":
        lines = [f"{place},{label or ''}" for place, label in enumerate(labels)]
        (tmp_path / name).write_text("\n".join(["a,y", *lines]))
    else:
        lines = [json.dumps({"text": f"{p}", "label": label}) for p, label in enumerate(labels)]
        (tmp_path / name).write_text("\n".join(lines))
    how = {"target": "y"} if name == "a.csv" else {}
    with pytest.raises(UserError, match=r"no label in 10 of 30 rows.*--skip-missing-labels"):
        labelled_rows(open_source(tmp_path / name, **how))
    source = open_source(tmp_path / name, **how, skip_missing_labels=True)
    kept = [place for place in range(30) if place % 3 != 1]
    assert labelled_rows(source) == kept
    if name == "a.jsonl":
        return  # a text needs an encoder to be prepared
    prepared = prepare(source, seed=0)
    assert sorted(row for rows in prepared.places.values() for row in rows) == kept
    assert prepared.task.facts["rows without a label left out"] == 10


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
    assert source.label_kind is NUMBER
    assert source.labels[3] == "1.5"


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
