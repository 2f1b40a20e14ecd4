"""The classifier inside scikit-learn's tools, and its accuracy beside a linear model's."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris, make_moons
from sklearn.ensemble import BaggingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch import nn

from hma.estimator import MemoryClassifier

FEW = {"max_epochs": 3, "random_state": 0}


@pytest.mark.parametrize(
    ("load", "folds", "margin"), [(load_iris, 3, 0.04), (load_breast_cancer, 2, 0.03)]
)
def test_accuracy_is_near_that_of_logistic_regression(load, folds, margin):
    x, y = load(return_X_y=True)
    folds = StratifiedKFold(folds, shuffle=True, random_state=0)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    expected = cross_val_score(linear, x, y, cv=folds).mean()
    pipeline = make_pipeline(StandardScaler(), MemoryClassifier(standardize=False, random_state=0))
    assert cross_val_score(pipeline, x, y, cv=folds).mean() > expected - margin


def test_it_bends_where_a_line_cannot():
    x, y = make_moons(300, noise=0.15, random_state=0)
    train, test = slice(0, 200), slice(200, None)
    linear = LogisticRegression().fit(x[train], y[train]).score(x[test], y[test])
    assert MemoryClassifier(random_state=0).fit(x[train], y[train]).score(x[test], y[test]) > (
        linear + 0.05
    )


def test_grid_search_sets_options_of_memory_and_training():
    x, y = load_iris(return_X_y=True)
    memory = MemoryClassifier(memory="hma", max_epochs=8, random_state=0)
    pipeline = make_pipeline(StandardScaler(), memory)
    grid = {
        "memoryclassifier__memory_size": np.array([8, 32]),
        "memoryclassifier__learning_rate": [1e-9, 1e-2],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(x, y)
    assert search.best_params_["memoryclassifier__learning_rate"] == 1e-2
    best = search.best_estimator_[-1]
    size = search.best_params_["memoryclassifier__memory_size"]
    assert len(best.model_.memory_state().ids) == size
    assert search.score(x, y) > 0.8


def test_an_ensemble_may_weigh_rows_by_bootstrap():
    x, y = load_iris(return_X_y=True)
    bagging = BaggingClassifier(MemoryClassifier(max_epochs=8), n_estimators=3, random_state=0)
    assert bagging.fit(x, y).score(x, y) > 0.85


def test_a_pickle_predicts_and_learns_on_as_the_original():
    x, y = load_iris(return_X_y=True)
    model = MemoryClassifier(random_state=0).partial_fit(x[::2], y[::2], classes=[0, 1, 2])
    model.predict(x)  # so that a cached projection is pickled with it
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(x), model.predict_proba(x))
    for one in (model, copy):
        one.partial_fit(x[1::2], y[1::2])
    np.testing.assert_array_equal(copy.predict_proba(x), model.predict_proba(x))


def test_a_clone_with_a_module_of_its_own_is_unfitted_and_equal_in_options():
    x, y = load_iris(return_X_y=True)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    model = MemoryClassifier(module, **FEW).fit(x, y)
    copy = clone(model)
    assert not hasattr(copy, "model_")
    assert copy.backbone is not module
    np.testing.assert_array_equal(copy.fit(x, y).predict_proba(x), model.predict_proba(x))


def test_mixed_columns_go_through_scikit_learns_transformers():
    """Words, numbers, missing cells and dates of a pandas table, in one pipeline."""
    generator = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=240, freq="5D")
    frame = pd.DataFrame(
        {
            "kind": generator.choice(["u", "v", "w"], 240),
            "size": np.where(np.arange(240) % 7 == 0, np.nan, generator.normal(size=240)),
            "day": days,
        }
    )
    y = np.where((frame.kind == "u") | (days.month > 8), "yes", "no")

    def calendar(table):
        return np.stack([table.day.dt.month, table.day.dt.year], axis=1).astype(float)

    columns = ColumnTransformer(
        [
            ("words", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["kind"]),
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["size"]),
            ("dates", FunctionTransformer(calendar), ["day"]),
        ],
        sparse_threshold=0.0,
    )
    train, test = slice(0, 160), slice(160, None)
    pipeline = make_pipeline(columns, MemoryClassifier(**FEW)).fit(frame[train], y[train])
    by_hand = MemoryClassifier(**FEW).fit(columns.fit_transform(frame[train]), y[train])
    expected = by_hand.predict_proba(columns.transform(frame[test]))
    np.testing.assert_array_equal(pipeline.predict_proba(frame[test]), expected)
    assert list(pipeline.classes_) == ["no", "yes"]
    new = frame[test].assign(kind="never seen", size=np.nan)
    assert np.isfinite(pipeline.predict_proba(new)).all()
    assert cross_val_score(pipeline, frame, y, cv=2).shape == (2,)


def test_skrub_makes_numbers_of_a_table_as_it_comes():
    skrub = pytest.importorskip("skrub", reason="skrub is not installed")
    draw = np.random.default_rng(0)
    y = draw.integers(3, size=120)
    frame = pd.DataFrame(
        {
            "city": draw.choice(["Rome", "Oslo", "Bonn"], size=120),
            "size": draw.normal(size=120) + 2 * y,
            "day": pd.date_range("2024-01-01", periods=120),
            "remark": [f"row {place} about {'xyz'[kind]}" for place, kind in enumerate(y)],
        }
    )
    frame.loc[3, "city"], frame.loc[5, "size"] = None, np.nan
    train, test = slice(0, 80), slice(80, None)
    words = skrub.StringEncoder(random_state=0)
    steps = skrub.TableVectorizer(high_cardinality=words), SimpleImputer()
    pipeline = make_pipeline(*steps, MemoryClassifier(**FEW)).fit(frame[train], y[train])
    numbers = make_pipeline(*steps)
    by_hand = MemoryClassifier(**FEW).fit(numbers.fit_transform(frame[train]), y[train])
    expected = by_hand.predict_proba(numbers.transform(frame[test]))
    np.testing.assert_array_equal(pipeline.predict_proba(frame[test]), expected)
    new = frame[test].assign(city=None, size=np.nan)
    assert np.isfinite(pipeline.predict_proba(new)).all()
