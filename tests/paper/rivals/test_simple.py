"""Prototypes and cache against their formulas, support vectors against scikit-learn."""

import math

import numpy as np
import pytest
from simple_cases import answered, class_task, fitted, floored
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import SVC

from hma.paper.rivals import cache, prototypes, support_vectors


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


@pytest.mark.parametrize(("count", "absent"), [(2, ()), (4, ()), (4, (1,)), (4, (0, 2))])
def test_margins_are_those_of_scikit_learn(count, absent):
    task = class_task(count, absent=absent)
    learner, _ = fitted(support_vectors(widths=(0.5,), costs=(3.0,), margins=(1.5,)), task)
    machine = OneVsRestClassifier(SVC(C=3.0, gamma=0.5 / task.train.x.shape[1]))
    model = make_pipeline(StandardScaler(), machine)
    model.fit(task.train.x.double().numpy(), task.train.labels.numpy())
    test = task.tests["test"]
    margins = model.decision_function(test.x.double().numpy())
    if margins.ndim == 1:
        margins = np.stack([-margins, margins], axis=1)
    odds = np.exp(1.5 * margins)
    expected = floored(odds / odds.sum(axis=1, keepdims=True), count, model.classes_)
    np.testing.assert_allclose(answered(learner, test), expected, atol=1e-3)


def test_validation_rows_choose_width_cost_and_trust_of_support_vectors():
    task = class_task(3)
    grid = {"widths": (0.1, 1.0), "costs": (1.0, 100.0), "margins": (1.0, 4.0)}
    losses = {}
    for width in grid["widths"]:
        for cost in grid["costs"]:
            for margin in grid["margins"]:
                one = support_vectors(widths=(width,), costs=(cost,), margins=(margin,))
                chances = answered(fitted(one, task)[0], task.validation)
                own = chances[np.arange(60), task.validation.labels]
                losses[width, cost, margin] = -np.log(own).mean()
    _, measures = fitted(support_vectors(**grid), task)
    width, cost, margin = min(losses, key=losses.get)
    assert measures["chosen"] == {"gamma": width, "C": cost, "scale": margin}
    assert math.isclose(measures["validation_loss"], min(losses.values()), rel_tol=1e-5)
