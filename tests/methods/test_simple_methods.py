"""Simple methods against scikit-learn's own answers."""

import math
import sys

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from hma.backbones.frozen import Frozen
from hma.data import InMemory, Task
from hma.errors import UserError
from hma.methods.cached_features import with_known_features
from hma.methods.simple import (
    NoSimpleRowError,
    boosting,
    forest,
    logistic,
    neighbours,
    prototypes,
    simple_methods,
    title,
)
from hma.methods.simple.simple_row import LEAST_CHANCE, MOST_ROWS
from hma.methods.simple.trees import rounded_down
from hma.methods.simple.vectors import vectors_of
from hma.targets import Classes, Number, SoftClasses, YesNo

WIDTH = 4


def inputs(count, seed, missing=False):
    x = np.random.default_rng(seed).normal(size=(count, WIDTH)) * [1, 5, 0.2, 1] + [0, 9, 1, -3]
    x[:, 3] = x[:, 3].round()  # values that repeat
    if missing:
        x[np.random.default_rng(seed + 100).random(x.shape) < 0.2] = math.nan
    return x.astype(np.float32)


def task_of(label, target, *, missing=False, classes=("a",), count=150):
    splits = []
    for seed, rows in enumerate((count, 60, 50)):
        x = inputs(rows, seed, missing)
        splits.append(InMemory(torch.from_numpy(x), torch.as_tensor(label(np.nan_to_num(x), seed))))
    return Task(
        "rows", "table", classes, (WIDTH,), splits[0], splits[1], {"test": splits[2]}, target=target
    )


def class_task(count, *, missing=False, absent=()):
    def label(x, seed):
        noise = np.random.default_rng(seed + 7).normal(size=len(x))
        wanted = [k for k in range(count) if k not in absent]
        score = x[:, 0] + 0.1 * x[:, 1] + 0.3 * noise
        return np.array(wanted)[np.searchsorted(np.linspace(-0.2, 1.8, len(wanted) - 1), score)]

    return task_of(label, Classes(count), missing=missing, classes=tuple("abcdef"[:count]))


def number_task(*, missing=False):
    def label(x, seed):
        return (40 + 3 * x[:, 0] * x[:, 1] + x[:, 2]).astype(np.float32)

    return task_of(label, Number(centre=41.0, scale=7.0), missing=missing)


def fitted(method, task, seed=0):
    learner = method(task, seed)
    measures = learner.fit_at_once(task, seed, lambda done, total: None)
    return learner, measures


def answered(learner, split):
    with torch.no_grad():
        logits = learner.predict(split.batch(torch.arange(len(split))))
    return learner.target.expected(logits).double().numpy()


def floored(model, x, classes):
    """What the class probabilities of a model are once each class gets the least chance."""
    chances = np.zeros((len(x), classes))
    chances[:, model.classes_] = model.predict_proba(x)
    return (1 - LEAST_CHANCE * classes) * chances + LEAST_CHANCE


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
        expected = floored(model, split.x.double().numpy(), count)
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
    expected = floored(model, test.x.double().numpy(), 3)
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
    found = rounded_down(between)
    assert found.dtype == np.float32
    assert low <= found[0] < high
    assert found[1] == np.inf
    assert found[2] == np.finfo(np.float32).max
    assert found[3] == high


def test_fewer_turns_are_those_of_a_shorter_fit():
    task = class_task(3)
    both = boosting(turns=(20, 3))(task, 0)
    ways = both.module.candidates(task.train.x, task.train.labels, 0)
    assert [next(ways), next(ways)] == [{"turns": 20}, {"turns": 3}]
    short, _ = fitted(boosting(turns=(3,)), task)
    np.testing.assert_array_equal(
        answered(both, task.tests["test"]), answered(short, task.tests["test"])
    )


def test_the_validation_rows_choose_the_setting():
    task = class_task(3)
    losses = {}
    for strength in (0.003, 0.3, 30.0):
        learner, _ = fitted(logistic(strengths=(strength,)), task)
        chances = answered(learner, task.validation)
        losses[strength] = -np.log(chances[np.arange(60), task.validation.labels]).mean()
    learner, measures = fitted(logistic(strengths=tuple(losses)), task)
    best = min(losses, key=losses.get)
    assert measures["chosen"] == {"C": best}
    assert math.isclose(measures["validation_loss"], losses[best], rel_tol=1e-5)
    alone, _ = fitted(logistic(strengths=(best,)), task)
    test = task.tests["test"]
    np.testing.assert_array_equal(answered(learner, test), answered(alone, test))


def test_one_logit_tells_two_classes_apart_as_two_logits_do():
    two = class_task(2)
    one = task_of(lambda x, seed: [0] * len(x), Classes(1))
    splits = {"train": two.train, "validation": two.validation, "tests": two.tests}
    one = Task(**{**one.__dict__, **splits})
    for name, method in simple_methods(two).items():
        chances = [answered(fitted(method, task)[0], two.tests["test"]) for task in (one, two)]
        np.testing.assert_allclose(chances[0], chances[1], atol=1e-6, err_msg=name)


def test_prototypes_are_mean_directions_and_absent_classes_have_none():
    task = class_task(4, absent=(1,))
    learner, _ = fitted(prototypes(scales=(5.0,)), task)
    scaler = StandardScaler().fit(task.train.x.double().numpy())
    directions = [normalize(scaler.transform(s.x.double())) for s in (task.train, task.validation)]
    y = task.train.labels.numpy()
    means = normalize(np.stack([directions[0][y == k].mean(axis=0) for k in (0, 2, 3)]))
    odds = np.exp(5.0 * directions[1] @ means.T)
    chances = np.zeros((60, 4))
    chances[:, [0, 2, 3]] = odds / odds.sum(axis=1, keepdims=True)
    expected = (1 - 4 * LEAST_CHANCE) * chances + LEAST_CHANCE
    np.testing.assert_allclose(answered(learner, task.validation), expected, atol=1e-5)


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


def test_rows_of_20000_are_the_most_that_are_fitted_and_the_seed_says_which():
    def label(x, seed):
        return (x[:, 0] > 0).astype(np.int64)

    task = task_of(label, Classes(2), classes=("a", "b"), count=MOST_ROWS + 50)
    found = [fitted(neighbours(counts=(1,)), task, seed) for seed in (0, 0, 1)]
    assert [measures["fitted_rows"] for _, measures in found] == [MOST_ROWS] * 3
    kept = [learner.module.stored.vectors for learner, _ in found]
    assert torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[0], kept[2])


def test_a_frozen_backbone_stands_in_front_and_one_that_trains_does_not():
    task = class_task(3)

    def trained(task):
        return _encoder().encoder.requires_grad_(True)

    learner, _ = fitted(logistic(lambda task: _encoder(), strengths=(0.3,)), task)
    features = learner.module.backbone(task.train.x).double().numpy()
    model = LogisticRegression(C=0.3, max_iter=200).fit(features, task.train.labels.numpy())
    test = task.tests["test"]
    seen = learner.module.backbone(test.x).double().numpy()
    np.testing.assert_allclose(answered(learner, test), floored(model, seen, 3), atol=2e-4)
    assert logistic(trained)(task, 0).module.backbone is None
    assert logistic(trained)(task, 0).module.width == WIDTH


def test_known_features_and_the_rows_they_are_of_get_the_same_answers(tmp_path):
    task = class_task(3)
    for name, method in simple_methods(task, lambda task: _encoder(standardised=True)).items():
        learner = method(task, 0)
        known = with_known_features(task, learner, tmp_path)
        assert known.train.batch(torch.arange(1)).x is None
        learner.fit_at_once(known, 0, lambda done, total: None)
        of_features, of_rows = (answered(learner, t.tests["test"]) for t in (known, task))
        np.testing.assert_allclose(of_features, of_rows, atol=1e-4, err_msg=name)
        with pytest.raises(UserError, match="must be built with the frozen backbone"):
            fitted(logistic(), known)


def _encoder(**options):
    torch.manual_seed(1)
    layer = nn.Linear(WIDTH, 7)
    layer.feature_dim = 7
    return Frozen(layer, **options)


def test_a_graph_is_the_sum_and_the_mean_of_its_nodes_and_its_size():
    data = pytest.importorskip("torch_geometric.data")
    nodes = [torch.randn(size, 3) for size in (4, 1, 6)]
    edges = torch.empty(2, 0, dtype=torch.long)
    batch = data.Batch.from_data_list([data.Data(x=x, edge_index=edges) for x in nodes])
    expected = [
        torch.cat([x.sum(0), x.mean(0), torch.tensor([math.log(1 + len(x))])]) for x in nodes
    ]
    torch.testing.assert_close(vectors_of(batch, 7), torch.stack(expected))
    with pytest.raises(NoSimpleRowError, match="tensors or graphs, got dict"):
        vectors_of({"tokens": torch.zeros(1)}, 7)


def test_labels_and_rows_without_a_simple_row_say_so():
    soft = task_of(lambda x, seed: np.zeros((len(x), 2), np.float32), SoftClasses(2))
    with pytest.raises(NoSimpleRowError, match="kind 'soft classes'; leave it out"):
        logistic()(soft, 0)
    task = class_task(3)
    text = Task(**{**task.__dict__, "kind": "text"})
    with pytest.raises(NoSimpleRowError, match="need a frozen backbone to read text"):
        neighbours()(text, 0)
    wide = Task(**{**task.__dict__, "kind": "image", "shape": (3, 64, 64)})
    with pytest.raises(NoSimpleRowError, match="at most 4096 values, got 12288"):
        boosting()(wide, 0)
    one = task_of(lambda x, seed: np.zeros(len(x), np.int64), Classes(2))
    with pytest.raises(NoSimpleRowError, match="at least two classes, got one"):
        fitted(logistic(), one)


def test_names_and_titles():
    task = class_task(3)
    assert list(simple_methods(task)) == ["logistic", "neighbours", "boosting"]
    assert list(simple_methods(Task(**{**task.__dict__, "kind": "image"}))) == [
        "logistic",
        "neighbours",
    ]
    assert [title(name, task.target) for name in simple_methods(task)] == [
        "logistic regression",
        "nearest neighbours",
        "gradient boosting",
    ]
    assert title("logistic", Number()) == "ridge regression"


class Without:
    """Finds no scikit-learn."""

    def find_spec(self, name, path=None, target=None):
        if name == "sklearn":
            raise ModuleNotFoundError(name="sklearn")


@pytest.mark.parametrize("method", [logistic(), boosting()])
def test_fitting_without_scikit_learn_names_it(method, monkeypatch):
    task = class_task(3)
    for module in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Without(), *sys.meta_path])
    with pytest.raises(UserError, match=r"(regression|boosting) needs scikit-learn: pip install"):
        fitted(method, task)


def test_logistic_regression_is_fitted_with_as_many_threads_as_torch_has(monkeypatch):
    seen = []

    def fit(self, x, y):
        seen.extend(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")
        return whole(self, x, y)

    whole = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", fit)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with threadpool_limits(2):
        fitted(logistic(strengths=(1.0,)), class_task(3))
    assert set(seen) == {1}
