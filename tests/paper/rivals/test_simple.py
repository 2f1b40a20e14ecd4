"""Prototypes and cache against their formulas."""

import numpy as np
from simple_cases import answered, class_task, fitted, floored
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler, normalize

from hma.paper.rivals import cache, prototypes


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
