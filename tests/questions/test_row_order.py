"""Rows in an order are told from rows in none, by the predictions alone."""

import warnings

import numpy as np
import pytest
import torch

from hma.questions.row_order import OrderedRowsWarning, SerialCorrelation


def correlation(values, sizes=None):
    found = SerialCorrelation()
    for part in torch.as_tensor(values).split(sizes or len(values)):
        found.add(part)
    return found


def predictions(kind, rows, seed):
    """Return noisy predictions, sorted by what is true, and a shuffle of the same rows."""
    draw = np.random.default_rng(seed)
    true = np.sort(draw.integers(0, 4, rows))
    if kind == "number":
        found = true + draw.normal(size=rows)
    else:
        scores = 2 * np.eye(4)[true] + draw.normal(size=(rows, 4))
        found = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return found, draw.permutation(found)


@pytest.mark.parametrize("kind", ["classes", "number"])
@pytest.mark.parametrize("rows", [300, 2000])
def test_sorted_rows_are_noticed_and_shuffled_ones_are_not(kind, rows):
    for seed in range(20):
        in_order, shuffled = predictions(kind, rows, seed)
        assert correlation(in_order).by_order
        assert not correlation(shuffled).by_order


def test_it_is_the_formula_whatever_the_parts():
    values = np.random.default_rng(0).normal(size=(50, 3)).cumsum(axis=0)
    steps = np.square(np.diff(values, axis=0)).sum()
    spread = np.square(values - values.mean(axis=0)).sum()
    for sizes in (None, 1, 7, [0, 3, 47]):
        assert correlation(values, sizes).value == pytest.approx(1 - steps / (2 * spread))


def test_over_all_orders_its_mean_is_nothing_and_its_deviation_what_is_said():
    draw = np.random.default_rng(1)
    values = draw.exponential(size=100)
    found = [correlation(draw.permutation(values)).value for _ in range(2000)]
    assert np.mean(found) == pytest.approx(0, abs=0.01)
    assert np.std(found) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("values", [[], [1.0], [2.0] * 40, list(range(16))])
def test_few_rows_and_equal_predictions_say_nothing(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        correlation(torch.tensor(values), 9).warn()


def test_the_warning_is_one_line_with_numbers_and_a_remedy():
    with pytest.warns(OrderedRowsWarning) as noted:
        correlation([0.0] * 50 + [1.0] * 50).warn()
    assert str(noted[0].message) == (
        "context 'batch' lets rows see those beside them, and these rows come in an order: "
        "predictions that follow each other correlate by 0.98 over 100 rows, by chance by less "
        "than 0.40; use context 'alone', or shuffle the rows"
    )
    assert issubclass(OrderedRowsWarning, UserWarning)
