"""Class names, their order, and labels that cannot be learned from."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
