"""Rows as a weighted set, against a dictionary and against scikit-learn's weights."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.utils.class_weight import compute_sample_weight

from hma.errors import UserError
from hma.estimator.learning import (
    WeightedRows,
    check_weights,
    hold_out,
    join_copies,
    with_class_weight,
)


def merged_by_hand(x, labels, weight):
    weights, first = defaultdict(float), {}
    for place, (row, label, amount) in enumerate(zip(x, labels, weight, strict=True)):
        if amount > 0:
            key = (*row.tolist(), int(label))
            weights[key] += amount
            first.setdefault(key, place)
    return {key: (amount, first[key]) for key, amount in weights.items()}


@st.composite
def few_values(draw):
    rows, columns = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    values = st.sampled_from([-1.5, -0.0, 0.0, 2.0])
    return (
        draw(arrays(np.float64, (rows, columns), elements=values)),
        draw(arrays(np.int64, rows, elements=st.integers(0, 2))),
        draw(arrays(np.float64, rows, elements=st.integers(0, 4).map(float))),
    )


@given(few_values())
def test_equal_rows_become_one_with_the_sum_of_their_weights(drawn):
    rows = join_copies(*drawn)
    found = {
        (*row.tolist(), int(label)): (amount, place)
        for row, label, amount, place in zip(*rows, strict=True)
    }
    assert found == merged_by_hand(*drawn)
    assert len(rows.labels) == len(found)


@given(few_values(), st.randoms(use_true_random=False))
def test_repeating_and_reordering_rows_changes_nothing_but_ids(drawn, random):
    x, labels, weight = drawn
    order = np.repeat(np.arange(len(x)), weight.astype(int))
    random.shuffle(order)
    one, other = join_copies(*drawn), join_copies(x[order], labels[order], np.ones(len(order)))
    for name in ("x", "labels", "weight"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def rows_of(labels, weight):
    count = len(labels)
    ids = np.arange(count)
    return WeightedRows(np.zeros((count, 1)), np.array(labels), np.array(weight, float), ids)


@pytest.mark.parametrize("class_weight", ["balanced", {"a": 2.0, "b": 0.5, "c": 1.0}, {"b": 3.0}])
def test_class_weights_are_those_of_scikit_learn(class_weight):
    labels, counts = [0, 1, 2], [5, 3, 2]
    rows = with_class_weight(rows_of(labels, counts), class_weight, np.array(["a", "b", "c"]))
    repeated = np.repeat(["a", "b", "c"], counts)
    each = compute_sample_weight(class_weight, repeated)
    expected = [each[repeated == name].sum() for name in "abc"]
    np.testing.assert_allclose(rows.weight, expected)


def test_a_class_of_weight_zero_is_left_out():
    rows = with_class_weight(rows_of([0, 1, 0], [1, 1, 1]), {0: 0.0}, np.array([0, 1]))
    assert rows.ids.tolist() == [1]


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("balance", "class_weight must be one of 'balanced', got 'balance'; did you mean"),
        ({7: 1.0}, r"class_weight names \[7\], which are not among the classes \[0, 1\] of y"),
        ({0: -1.0}, "class_weight must hold finite weights of at least 0"),
        ([1.0, 2.0], "class_weight must be a dict from class to weight, 'balanced' or None"),
        ({0: 0.0, 1: 0.0}, "class_weight is zero for every class that has rows"),
    ],
)
def test_a_class_weight_that_makes_no_sense_is_refused(class_weight, message):
    with pytest.raises(UserError, match=message):
        with_class_weight(rows_of([0, 1], [1, 1]), class_weight, np.array([0, 1]))


def test_a_weight_for_a_class_without_rows_is_no_mistake():
    rows = with_class_weight(rows_of([0, 1], [1, 1]), {0: 1, 1: 2, 2: 9}, np.array([0, 1]))
    assert rows.weight.tolist() == [1.0, 2.0]


def test_a_negative_weight_names_its_row():
    with pytest.raises(UserError, match=r"sample_weight must be at least 0, got -2.0 for row 1"):
        check_weights([1.0, -2.0, 1.0], np.zeros((3, 1)))


def test_rows_held_out_are_stratified_and_disjoint():
    rows = rows_of([0] * 40 + [1] * 20, [1] * 60)
    train, held_out = hold_out(rows, 0.25, seed=3)
    assert np.bincount(held_out.labels).tolist() == [10, 5]
    assert sorted([*train.ids, *held_out.ids]) == list(range(60))


def test_a_class_with_one_row_cannot_be_held_out():
    with pytest.raises(UserError, match="early_stopping cannot hold out 25% of 5 distinct rows"):
        hold_out(rows_of([0, 0, 0, 0, 1], [1] * 5), 0.25, seed=0)
