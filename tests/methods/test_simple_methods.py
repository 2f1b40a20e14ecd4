"""Simple methods against scikit-learn's own answers."""

import math

import numpy as np
import pytest
import torch
from simple_cases import (
    WIDTH,
    answered,
    class_task,
    fitted,
    floored,
    floored_answers,
    number_task,
    task_of,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hma.data import InMemory, Task
from hma.methods.simple import boosting, kernel, logistic, neighbours, simple_methods
from hma.methods.simple.kernel import least_squares
from hma.methods.simple.simple_row import LEAST_CHANCE
from hma.methods.simple.trees import round_down
from hma.paper.rivals import forest
from hma.targets import Classes, SoftClasses, YesNo

CLASS_MODELS = {
    "logistic": (
        logistic(strengths=(0.3,)),
        lambda: make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=200)),
    ),
    "neighbours": (
        neighbours(counts=(5,)),
        lambda: make_pipeline(StandardScaler(), KNeighborsClassifier(5, weights="distance")),
    ),
    "boosting": (
        boosting(turns=(12,)),
        lambda: HistGradientBoostingClassifier(max_iter=12, early_stopping=False, random_state=0),
    ),
    "forest": (
        forest(leaves=(3,)),
        lambda: RandomForestClassifier(100, min_samples_leaf=3, random_state=0),
    ),
}
NUMBER_MODELS = {
    "logistic": (
        logistic(strengths=(0.5,)),
        lambda: make_pipeline(StandardScaler(), Ridge(2.0)),
    ),
    "neighbours": (
        neighbours(counts=(5,)),
        lambda: make_pipeline(StandardScaler(), KNeighborsRegressor(5, weights="distance")),
    ),
    "boosting": (
        boosting(turns=(12,)),
        lambda: HistGradientBoostingRegressor(max_iter=12, early_stopping=False, random_state=0),
    ),
    "forest": (
        forest(leaves=(3,)),
        lambda: RandomForestRegressor(100, min_samples_leaf=3, random_state=0),
    ),
}


@pytest.mark.parametrize("row", CLASS_MODELS)
@pytest.mark.parametrize(("count", "absent"), [(2, ()), (4, ()), (4, (1,)), (4, (0, 2))])
def test_class_probabilities_are_those_of_scikit_learn(row, count, absent):
    task = class_task(count, absent=absent)
    method, oracle = CLASS_MODELS[row]
    model = oracle().fit(task.train.x.double().numpy(), task.train.labels.numpy())
    learner, _ = fitted(method, task)
    for split in (task.tests["test"], task.train):
        expected = floored_answers(model, split.x.double().numpy(), count)
        np.testing.assert_allclose(answered(learner, split), expected, atol=2e-5)


@pytest.mark.parametrize("row", NUMBER_MODELS)
def test_numbers_are_those_of_scikit_learn(row):
    task = number_task()
    method, oracle = NUMBER_MODELS[row]
    model = oracle().fit(task.train.x.double().numpy(), task.train.labels.double().numpy())
    learner, _ = fitted(method, task)
    test = task.tests["test"]
    expected = model.predict(test.x.double().numpy())
    np.testing.assert_allclose(answered(learner, test), expected, rtol=1e-4)


@pytest.mark.parametrize("row", ["boosting", "forest"])
def test_trees_send_missing_values_where_scikit_learn_does(row):
    task = class_task(3, missing=True)
    method, oracle = CLASS_MODELS[row]
    model = oracle().fit(task.train.x.double().numpy(), task.train.labels.numpy())
    learner, _ = fitted(method, task)
    test = task.tests["test"]
    assert test.x.isnan().any()
    expected = floored_answers(model, test.x.double().numpy(), 3)
    np.testing.assert_allclose(answered(learner, test), expected, atol=2e-5)


@pytest.mark.parametrize("row", ["logistic", "neighbours"])
def test_a_missing_value_is_the_mean_of_its_column_to_the_others(row):
    task = class_task(3, missing=True)
    x = task.train.x
    means = x.nanmean(dim=0)
    learner, _ = fitted(CLASS_MODELS[row][0], task)
    test = task.tests["test"]
    filled = InMemory(torch.where(test.x.isnan(), means, test.x), test.labels)
    np.testing.assert_allclose(answered(learner, test), answered(learner, filled), atol=1e-4)


def test_thresholds_part_32_bit_numbers_as_64_bit_ones_do():
    low = np.float32(0.1)
    high = np.nextafter(low, np.float32(1))
    between = np.array([(float(low) + float(high)) / 2, np.inf, 1e39, float(high)])
    found = round_down(between)
    assert found.dtype == np.float32
    assert low <= found[0] < high
    assert found[1] == np.inf
    assert found[2] == np.finfo(np.float32).max
    assert found[3] == high


def test_one_logit_tells_two_classes_apart_as_two_logits_do():
    two = class_task(2)
    one = task_of(lambda x, seed: [0] * len(x), Classes(1))
    splits = {"train": two.train, "validation": two.validation, "tests": two.tests}
    one = Task(**{**one.__dict__, **splits})
    for name, method in simple_methods(two).items():
        chances = [answered(fitted(method, task)[0], two.tests["test"]) for task in (one, two)]
        np.testing.assert_allclose(chances[0], chances[1], atol=1e-6, err_msg=name)


def test_each_yes_no_label_has_a_logistic_regression_of_the_rows_that_have_it():
    def label(x, seed):
        y = np.stack([x[:, 0] > 0, x[:, 1] > 9, np.ones(len(x))], axis=1).astype(np.float32)
        y[::3, 1] = math.nan
        return y

    task = task_of(label, YesNo(3), classes=("p", "q", "r"))
    learner, _ = fitted(logistic(strengths=(0.3,)), task)
    x, y, test = task.train.x.numpy(), task.train.labels.numpy(), task.tests["test"]
    found = answered(learner, test)
    scaler = StandardScaler().fit(x)
    for place in (0, 1):
        known = ~np.isnan(y[:, place])
        model = LogisticRegression(C=0.3, max_iter=200).fit(
            scaler.transform(x[known]), y[known, place]
        )
        expected = model.predict_proba(scaler.transform(test.x.numpy()))[:, 1]
        np.testing.assert_allclose(found[:, place], expected, atol=1e-4)
    np.testing.assert_allclose(found[:, 2], 151 / 152, rtol=1e-5)  # always yes, plus one of each


def test_neighbours_with_soft_labels_answer_with_their_weighted_mean():
    def label(x, seed):
        share = 1 / (1 + np.exp(-x[:, 0]))
        return np.stack([share, 1 - share], axis=1).astype(np.float32)

    task = task_of(label, SoftClasses(2), classes=("a", "b"))
    learner, _ = fitted(neighbours(counts=(5,)), task)
    model = make_pipeline(StandardScaler(), KNeighborsRegressor(5, weights="distance"))
    model.fit(task.train.x.double().numpy(), task.train.labels.numpy())
    expected = model.predict(task.tests["test"].x.double().numpy())
    expected = (1 - 2 * LEAST_CHANCE) * expected + LEAST_CHANCE
    np.testing.assert_allclose(answered(learner, task.tests["test"]), expected, atol=2e-5)


def test_kernel_ridge_regression_is_that_of_scikit_learn():
    task = number_task()
    learner, _ = fitted(kernel(widths=(0.3,), penalties=(0.1,), scales=(1.0,)), task)
    scaler = StandardScaler().fit(task.train.x.double().numpy())
    y = task.train.labels.double().numpy()
    model = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.3 / WIDTH)
    model.fit(scaler.transform(task.train.x.double()), y - y.mean())
    test = task.tests["test"]
    expected = model.predict(scaler.transform(test.x.double())) + y.mean()
    np.testing.assert_allclose(answered(learner, test), expected, rtol=1e-3)


def test_kernel_scores_of_classes_are_made_probabilities_and_absent_ones_have_none():
    task = class_task(4, absent=(1,))
    learner, _ = fitted(kernel(widths=(1.0,), penalties=(0.1,), scales=(6.0,)), task)
    scaler = StandardScaler().fit(task.train.x.double().numpy())
    y = np.eye(4)[task.train.labels][:, [0, 2, 3]]
    model = KernelRidge(alpha=0.1, kernel="rbf", gamma=1 / WIDTH)
    model.fit(scaler.transform(task.train.x.double()), y - y.mean(axis=0))
    test = task.tests["test"]
    odds = np.exp(6 * (model.predict(scaler.transform(test.x.double())) + y.mean(axis=0)))
    expected = floored(odds / odds.sum(axis=1, keepdims=True), 4, [0, 2, 3])
    np.testing.assert_allclose(answered(learner, test), expected, atol=1e-3)


def test_bumps_around_some_rows_fit_all_rows():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 30, 3, generator=generator, dtype=torch.float64)
    gamma = torch.tensor(2.0)
    whole = least_squares(x, y, x, gamma, [9.0, 0.5])[1]
    twice = least_squares(x.repeat(2, 1), y.repeat(2, 1), x, gamma, [1.0])[0]  # each row twice
    torch.testing.assert_close(twice, whole, rtol=1e-3, atol=1e-4)
