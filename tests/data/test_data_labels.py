"""Class names, their order, and labels that cannot be learned from."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hma.data import labelled_rows, open_source, prepare
from hma.data.labels import class_names, encode, expect_learnable, expect_present, label_text
from hma.errors import UserError


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
        expect_learnable(["a", "a", "a"])


def test_no_rows_at_all_are_refused():
    with pytest.raises(UserError, match=r"there are no rows to learn from"):
        expect_learnable([])


def test_a_class_with_one_row_is_named():
    with pytest.raises(UserError, match=r"class 'lynx' has one row only.* add rows"):
        expect_learnable(["cat", "cat", "lynx", "dog", "dog"])


def test_many_single_numbers_look_like_a_quantity():
    with pytest.raises(UserError, match=r"3 of 3 classes have one row only.*a quantity"):
        expect_learnable(["0.5", "0.25", "7"])


@pytest.mark.parametrize("alone", [["60"], ["60", "61"]])
def test_many_numbers_look_like_a_quantity_where_few_are_single(alone):
    ages = [str(age) for age in range(20, 50)] * 2
    with pytest.raises(UserError, match=r"one row only.*use --task regression"):
        expect_learnable(ages + alone)
    with pytest.raises(UserError, match="one row only") as found:
        expect_learnable(["1", "2", "3"] * 2 + alone)
    assert "regression" not in str(found.value)


def test_two_single_words_do_not():
    with pytest.raises(UserError, match=r"2 of 3 classes have one row only") as found:
        expect_learnable(["a", "b", "c", "c"])
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
    expect_learnable(["1", "1.0", "2", "2"])
    with pytest.raises(UserError, match=r"class '3' has one row only"):
        expect_learnable(["1", "1.0", "3.0"])


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
