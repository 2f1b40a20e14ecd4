"""Prototypes, kernel and cache against their formulas."""

import numpy as np
import torch
from simple_cases import WIDTH, answered, class_task, fitted, floored, number_task
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler, normalize

from hma.methods.simple import cache, kernel, prototypes
from hma.methods.simple.kernel import least_squares


def test_prototypes_are_mean_directions_and_absent_classes_have_none():
    task = class_task(4, absent=(1,))
    learner, _ = fitted(prototypes(scales=(5.0,)), task)
    scaler = StandardScaler().fit(task.train.x.double().numpy())
    directions = [normalize(scaler.transform(s.x.double())) for s in (task.train, task.validation)]
    y = task.train.labels.numpy()
    means = normalize(np.stack([directions[0][y == k].mean(axis=0) for k in (0, 2, 3)]))
    odds = np.exp(5.0 * directions[1] @ means.T)
    expected = floored(odds / odds.sum(axis=1, keepdims=True), 4, [0, 2, 3])
    np.testing.assert_allclose(answered(learner, task.validation), expected, atol=1e-5)


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


def test_a_cache_adds_what_alike_rows_say_to_a_linear_layer():
    task = class_task(3)
    learner, _ = fitted(cache(strengths=(0.3,), sharpness=(4.0,), shares=(0.5,)), task)
    scaler = StandardScaler().fit(task.train.x.double().numpy())
    x, test = (scaler.transform(s.x.double()) for s in (task.train, task.tests["test"]))
    y = task.train.labels.numpy()
    linear = LogisticRegression(C=0.3, max_iter=200).fit(x, y)
    loud = np.exp(-4 * (1 - normalize(test) @ normalize(x).T))
    scores = linear.decision_function(test) + 0.5 * loud @ np.eye(3)[y]
    expected = floored(np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), 3, [0, 1, 2])
    np.testing.assert_allclose(answered(learner, task.tests["test"]), expected, atol=1e-4)
