"""The linear part against scikit-learn, its share against a search, the whole against its parts."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hma.estimator import MemoryClassifier, MemoryRegressor
from hma.estimator.learning import WeightedRows
from hma.estimator.linear_part import FAVOUR, SHARE, fit_linear_part
from hma.targets import Classes, Number, YesNo

FEW = {"max_epochs": 3, "random_state": 0}


def weighted(x, labels, weight=None):
    weight = np.ones(len(x)) if weight is None else weight
    return WeightedRows(x, labels, weight.astype(float), np.arange(len(x)))


@pytest.mark.parametrize("count", [2, 3])
def test_the_line_of_classes_is_scikit_learns_on_standardised_columns(count):
    x, y = load_iris(return_X_y=True)
    x, y = x[y < count] * [1, 100, 1, 0.01], y[y < count]
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    part = fit_linear_part(weighted(x, y, weight), weighted(x, y), None, None, Classes(count))
    mean = np.average(x, axis=0, weights=weight)
    deviation = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
    model = LogisticRegression(max_iter=200)
    model.fit((x - mean) / deviation, y, sample_weight=weight / weight.mean())
    expected = model.predict_proba((x - mean) / deviation)
    np.testing.assert_allclose(part.logits(torch.tensor(x)).softmax(1), expected, atol=1e-8)
    assert float(part.share) == SHARE


def test_the_line_of_a_number_is_ridge_regression():
    x, y = load_diabetes(return_X_y=True)
    target = Number(float(y.mean()), float(y.std()))
    part = fit_linear_part(weighted(x, y), weighted(x, y), None, None, target)
    model = make_pipeline(StandardScaler(), Ridge()).fit(x, y)
    predicted = target.expected(part.logits(torch.tensor(x)))
    np.testing.assert_allclose(predicted, model.predict(x), rtol=1e-6)


def test_missing_labels_of_several_are_left_out():
    x = np.arange(20.0)[:, None]
    y = np.stack([x[:, 0] > 9, np.where(x[:, 0] % 2 == 0, np.nan, x[:, 0] > 9)], axis=1)
    part = fit_linear_part(weighted(x, y), weighted(x, y), None, None, YesNo(2))
    standard = (x - x.mean()) / x.std()
    model = LogisticRegression().fit(standard[1::2], y[1::2, 1])
    found = part.logits(torch.tensor(x))[:, 1].sigmoid()
    np.testing.assert_allclose(found, model.predict_proba(standard)[:, 1], atol=1e-8)


def test_the_share_has_the_least_loss_on_held_out_rows_and_a_few_more():
    x, y = load_breast_cancer(return_X_y=True)
    train, held_out = weighted(x[::2], y[::2]), weighted(x[1::2], y[1::2])
    network = torch.randn(len(held_out.labels), 2, generator=torch.Generator().manual_seed(0))
    network[torch.arange(len(network)), torch.tensor(held_out.labels)] += 2
    part = fit_linear_part(weighted(x, y), train, held_out, network, Classes(2))
    alone = fit_linear_part(train, train, None, None, Classes(2)).logits(torch.tensor(held_out.x))
    chances = [
        z.double().softmax(1)[torch.arange(len(z)), held_out.labels] for z in (network, alone)
    ]

    def cost(share):
        mixed = (1 - share) * chances[0] + share * chances[1]
        return -mixed.log().sum() - FAVOUR[0] * np.log(1 - share) - FAVOUR[1] * np.log(share)

    best = min(np.linspace(0.001, 0.999, 999), key=cost)
    assert float(part.share) == pytest.approx(best, abs=0.002)


def test_rows_of_one_class_have_no_line():
    x, y = load_iris(return_X_y=True)
    model = MemoryClassifier(class_weight={0: 1, 1: 0, 2: 0}, linear=True, **FEW).fit(x, y)
    assert model.linear_ is None
    assert set(model.predict(x)) == {0}


def test_a_probability_is_the_mixture_of_both_parts():
    x, y = load_iris(return_X_y=True)
    model = MemoryClassifier(early_stopping=True, linear=True, **FEW).fit(x, y)
    whole, part = model.predict_proba(x), model.linear_
    line = part.logits(torch.tensor(model.inputs_.scaler.transform(x))).softmax(1).numpy()
    model.linear_ = None
    share = float(part.share)
    np.testing.assert_allclose(whole, (1 - share) * model.predict_proba(x) + share * line)


def test_a_pass_over_more_rows_leaves_the_network_alone():
    x, y = load_iris(return_X_y=True)
    model = MemoryClassifier(linear=True, **FEW).fit(x, y)
    assert model.linear_ is not None
    assert model.partial_fit(x, y).linear_ is None


@pytest.mark.slow
def test_with_a_linear_part_the_log_loss_is_not_above_that_of_logistic_regression():
    x, y = load_breast_cancer(return_X_y=True)
    ours, theirs = [], []
    for seed in range(3):
        train, test, train_y, test_y = train_test_split(x, y, stratify=y, random_state=seed)
        linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(train, train_y)
        model = MemoryClassifier(linear=True, random_state=seed).fit(train, train_y)
        ours.append(log_loss(test_y, model.predict_proba(test)))
        theirs.append(log_loss(test_y, linear.predict_proba(test)))
    assert np.mean(ours) < 1.05 * np.mean(theirs)


@pytest.mark.slow
def test_by_default_a_number_is_predicted_as_well_as_by_ridge_regression():
    x, y = load_diabetes(return_X_y=True)
    ours, theirs = [], []
    for seed in range(3):
        train, test, train_y, test_y = train_test_split(x, y, random_state=seed)
        linear = make_pipeline(StandardScaler(), Ridge()).fit(train, train_y)
        model = MemoryRegressor(random_state=seed).fit(train, train_y)
        ours.append(model.score(test, test_y))
        theirs.append(linear.score(test, test_y))
    assert np.mean(ours) > np.mean(theirs) - 0.02
