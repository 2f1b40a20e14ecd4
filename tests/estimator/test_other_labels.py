"""Numbers and several yes/no labels: real runs, oracles, files, and labels that do not fit."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score

from hma import MemoryClassifier, MemoryRegressor
from hma.errors import UserError
from hma.io.checkpoint import CheckpointError

SMALL = {"random_state": 0, "max_epochs": 8, "hidden": (16,), "memory_size": 32}


def several_labels(rows=400, labels=12, seed=0):
    """Labels that follow from rows, 30% of them missing, and all of them."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 8))
    whole = (x @ draw.normal(size=(8, labels)) + draw.normal(size=(rows, labels)) > 0).astype(float)
    return x, np.where(draw.random(whole.shape) < 0.3, np.nan, whole), whole


def test_diabetes_is_predicted_about_as_well_as_by_a_linear_model():
    x, y = load_diabetes(return_X_y=True)
    options = {"random_state": 0, "max_epochs": 15, "learning_rate": 2e-3, "dropout": 0.2}
    found = cross_val_score(MemoryRegressor(**options), x, y, cv=3)
    oracle = cross_val_score(Ridge(alpha=0.1), x, y, cv=3)
    assert found.mean() > oracle.mean() - 0.08 > 0.3


def test_twelve_labels_are_learned_from_the_seven_tenths_that_are_there():
    x, y, whole = several_labels()
    model = MemoryClassifier(random_state=0).fit(x[:300], y[:300])
    said = model.predict_proba(x[300:])
    assert said.shape == (100, 12)
    assert roc_auc_score(whole[300:], said) > 0.8
    np.testing.assert_array_equal(model.predict(x[300:]), said > 0.5)
    assert model.classes_.tolist() == list(range(12))


def test_a_missing_label_says_nothing():
    x, y, _ = several_labels(rows=60, labels=3)
    y[0] = math.nan
    longer = SMALL | {"max_epochs": 40}
    other = MemoryClassifier(**longer).fit(x, np.where(np.isnan(y), np.nan, y))
    model = MemoryClassifier(**longer).fit(x, y)
    np.testing.assert_array_equal(model.predict_proba(x), other.predict_proba(x))
    assert model.loss_curve_[-1] < model.loss_curve_[0]


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_regressor_does_not_depend_on_the_unit_of_y(early_stopping):
    x, y = load_diabetes(return_X_y=True)
    options = SMALL | {"early_stopping": early_stopping}
    first = MemoryRegressor(**options).fit(x, y)
    other = MemoryRegressor(**options).fit(x, 4 * y + 1024)
    np.testing.assert_allclose(other.predict(x), 4 * first.predict(x) + 1024, rtol=1e-3)


def test_both_are_saved_and_loaded_and_go_on_learning(tmp_path):
    x, y, _ = several_labels(rows=60, labels=3)
    number = x[:, 0]
    pairs = [
        (MemoryClassifier(**SMALL).fit(x, y), y),
        (MemoryRegressor(**SMALL).fit(x, number), number),
    ]
    for place, (model, labels) in enumerate(pairs):
        model.save(tmp_path / str(place))
        loaded = type(model).load(tmp_path / str(place))
        np.testing.assert_allclose(loaded.predict(x), model.predict(x), atol=1e-5)
        loaded.partial_fit(x, labels)
        assert loaded.n_iter_ == model.n_iter_ + 1
    with pytest.raises(CheckpointError, match="holds a regressor, which MemoryClassifier is not"):
        MemoryClassifier.load(tmp_path / "1")
    with pytest.raises(CheckpointError, match="holds a classifier, which MemoryRegressor is not"):
        MemoryRegressor.load(tmp_path / "0")


def test_partial_fit_of_several_labels_keeps_their_number():
    x, y, _ = several_labels(rows=60, labels=3)
    model = MemoryClassifier(**SMALL).partial_fit(x, y)
    with pytest.raises(UserError, match="as many columns as in the first call, 3, got 2"):
        model.partial_fit(x, y[:, :2])
    with pytest.raises(UserError, match="as many columns as in the first call, 3, got 1"):
        model.partial_fit(x, y[:, 0] == 1)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda y: y * math.nan, {}, "y must hold a 0 or 1 in every column, column 0 has none"),
        (lambda y: y * 2, {}, r"y of several columns must hold 0, 1, and NaN .*, got 2.0"),
        (
            lambda y: y,
            {"class_weight": "balanced"},
            "class_weight must be None where",
        ),
    ],
)
def test_several_labels_that_do_not_fit_are_named(change, options, message):
    x, y, _ = several_labels(rows=60, labels=3)
    with pytest.raises(UserError, match=message):
        MemoryClassifier(**SMALL | options).fit(x, change(y))


def test_a_number_that_is_the_same_in_every_row_is_refused():
    x, _ = load_iris(return_X_y=True)
    with pytest.raises(UserError, match=r"y must vary to be learned, got 3.0 in all of 150"):
        MemoryRegressor(**SMALL).fit(x, np.full(150, 3.0))
    with pytest.raises(ValueError, match="infinity"):
        MemoryRegressor(**SMALL).fit(x, np.full(150, math.inf))
