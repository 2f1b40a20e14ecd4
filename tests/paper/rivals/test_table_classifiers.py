"""Classifiers of tables against their libraries, called directly."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from simple_cases import answered, class_task, fitted, floored

from hma.data import InMemory
from hma.errors import UserError
from hma.extras import install_command, needed_beside_torchvision
from hma.methods.simple import NoSimpleRowError
from hma.methods.simple.simple_row import LEAST_CHANCE
from hma.paper.rivals import catboost, lightgbm, real_mlp, tabm, xgboost, xrfm

METHODS = {
    "CatBoost": (catboost, "catboost"),
    "XGBoost": (xgboost, "xgboost"),
    "LightGBM": (lightgbm, "lightgbm"),
    "RealMLP": (real_mlp, "pytabkit"),
    "TabM": (tabm, "pytabkit"),
    "XRFM": (xrfm, "xrfm"),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning's own


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    """Let networks train for less than by default, here and in the oracle."""
    needed_beside_torchvision("pytabkit", "the oracle")
    from pytabkit.models.sklearn.default_params import DefaultParams

    for defaults in (DefaultParams.RealMLP_TD_CLASS, DefaultParams.TABM_D_CLASS):
        monkeypatch.setitem(defaults, "n_epochs", 3)


def call_catboost(train, validation, seed):
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(
        random_seed=seed,
        thread_count=torch.get_num_threads(),
        verbose=False,
        allow_writing_files=False,
    )
    return model.fit(*train, eval_set=validation)


def call_xgboost(train, validation, seed):
    import xgboost

    x, y = train
    classes = len(np.unique(y))
    kinds = {"objective": "multi:softprob", "num_class": classes, "eval_metric": "mlogloss"}
    if classes == 2:
        kinds = {"objective": "binary:logistic", "eval_metric": "logloss"}
    told = {}
    booster = xgboost.train(
        {**kinds, "seed": seed, "nthread": torch.get_num_threads()},
        xgboost.DMatrix(x, y),
        100,
        evals=[(xgboost.DMatrix(*validation), "held")],
        evals_result=told,
        verbose_eval=False,
    )
    turns = int(np.argmin(told["held"][kinds["eval_metric"]])) + 1

    class Best:
        def predict_proba(self, rows):
            chances = booster.predict(xgboost.DMatrix(rows), iteration_range=(0, turns))
            return chances if classes > 2 else np.stack([1 - chances, chances], axis=1)

    return Best()


def call_lightgbm(train, validation, seed):
    import lightgbm

    classes = len(np.unique(train[1]))
    several = {"objective": "multiclass", "num_class": classes}
    kinds = several if classes > 2 else {"objective": "binary"}
    rows, told = lightgbm.Dataset(*train), {}
    booster = lightgbm.train(
        {**kinds, "seed": seed, "num_threads": torch.get_num_threads(), "verbose": -1},
        rows,
        100,
        valid_sets=[rows.create_valid(*validation)],
        valid_names=["held"],
        callbacks=[lightgbm.record_evaluation(told)],
    )
    (losses,) = told["held"].values()

    class Best:
        def predict_proba(self, x):
            chances = booster.predict(x, num_iteration=int(np.argmin(losses)) + 1)
            return chances if classes > 2 else np.stack([1 - chances, chances], axis=1)

    return Best()


def call_real_mlp(train, validation, seed):
    from pytabkit import RealMLP_TD_Classifier

    threads = torch.get_num_threads()
    model = RealMLP_TD_Classifier(device="cpu", random_state=seed, n_threads=threads)
    return model.fit(*train, *validation)


def call_tabm(train, validation, seed):
    from pytabkit import TabM_D_Classifier

    threads = torch.get_num_threads()
    model = TabM_D_Classifier(device="cpu", random_state=seed, n_threads=threads)
    return model.fit(*train, *validation)


def call_xrfm(train, validation, seed):
    from xrfm import xRFM

    model = xRFM(device=torch.device("cpu"), random_state=seed, verbose=False)
    return model.fit(*train, *validation)


CALLS = {
    "CatBoost": call_catboost,
    "XGBoost": call_xgboost,
    "LightGBM": call_lightgbm,
    "RealMLP": call_real_mlp,
    "TabM": call_tabm,
    "XRFM": call_xrfm,
}


def arrays(split, known):
    return split.x.numpy(), np.searchsorted(known, split.labels.numpy())


@pytest.mark.parametrize("row", METHODS)
@pytest.mark.parametrize(("count", "absent"), [(2, ()), (4, (1,))])
def test_answers_are_those_of_the_library(row, count, absent):
    task = class_task(count, absent=absent)
    learner, _ = fitted(METHODS[row][0](), task, seed=3)
    known = [k for k in range(count) if k not in absent]
    model = CALLS[row](arrays(task.train, known), arrays(task.validation, known), 3)
    test = task.tests["test"]
    expected = floored(np.asarray(model.predict_proba(test.x.numpy())), count, known)
    np.testing.assert_allclose(answered(learner, test), expected, atol=1e-5)


@pytest.mark.parametrize("row", METHODS)
def test_a_class_that_only_validation_rows_have_gets_the_least_chance(row):
    task = class_task(4, absent=(1,))
    labels = task.validation.labels.clone()
    labels[::7] = 1
    task = replace(task, validation=InMemory(task.validation.x, labels))
    learner, _ = fitted(METHODS[row][0](), task)
    chances = answered(learner, task.tests["test"])
    assert chances.shape == (50, 4)
    np.testing.assert_allclose(chances[:, 1], LEAST_CHANCE, rtol=1e-4)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("row", METHODS)
def test_the_seed_decides_every_draw(row):
    task = class_task(3)
    first, again, other = (
        answered(fitted(METHODS[row][0](), task, seed)[0], task.tests["test"]) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    if row in ("CatBoost", "RealMLP", "TabM"):  # the defaults of the others draw nothing
        assert np.abs(first - other).max() > 1e-3


@pytest.mark.parametrize("row", METHODS)
def test_without_its_package_a_line_names_the_extra(row, monkeypatch):
    method, package = METHODS[row]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError) as raised:
        fitted(method(), class_task(2))
    name = {"XRFM": "xRFM"}.get(row, row)
    assert str(raised.value) == f"{name} needs {package}: {install_command('rivals')}"


@pytest.mark.parametrize("row", ["CatBoost", "XGBoost", "LightGBM"])
def test_validation_rows_say_how_many_trees_answer_and_without_them_all_do(row):
    task = class_task(3)
    _, measures = fitted(METHODS[row][0](), task)
    most = 1000 if row == "CatBoost" else 100
    assert 1 < measures["chosen"]["turns"] < most
    nothing = replace(task, validation=InMemory(task.train.x[:0], task.train.labels[:0]))
    _, measures = fitted(METHODS[row][0](), nothing)
    assert measures["chosen"] == {"turns": most}


def test_xrfm_without_validation_rows_says_so():
    task = class_task(3)
    nothing = replace(task, validation=InMemory(task.train.x[:0], task.train.labels[:0]))
    with pytest.raises(NoSimpleRowError, match="xRFM must have validation rows, got none"):
        fitted(xrfm(), nothing)


@pytest.mark.parametrize("row", ["RealMLP", "TabM", "XRFM"])
def test_a_missing_value_is_the_mean_of_its_column_to_what_takes_none(row):
    task = class_task(3, missing=True)
    learner, _ = fitted(METHODS[row][0](), task)
    test = task.tests["test"]
    assert test.x.isnan().any()
    filled = torch.where(test.x.isnan(), task.train.x.nanmean(dim=0), test.x)
    np.testing.assert_array_equal(
        answered(learner, test), answered(learner, InMemory(filled, test.labels))
    )


def test_weights_alone_do_not_answer():
    task = class_task(3)
    learner, _ = fitted(lightgbm(), task)
    other = lightgbm()(task, 0)
    other.module.load_state_dict(learner.module.state_dict())
    with pytest.raises(UserError, match="LightGBM must be fitted in the process that asks it"):
        answered(other, task.tests["test"])
