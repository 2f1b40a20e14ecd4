"""How simple baselines are fitted: to which rows, with which setting, behind which backbone."""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from simple_cases import WIDTH, answered, class_task, encoder, fitted, floored_answers, task_of
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from hma.data import Task
from hma.errors import UserError
from hma.methods.cached_features import with_known_features
from hma.methods.simple import (
    NoSimpleRowError,
    boosting,
    logistic,
    neighbours,
    simple_methods,
    title,
)
from hma.methods.simple.simple_row import MOST_ROWS, vectors_of
from hma.targets import Classes, Number, SoftClasses


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
        return encoder().encoder.requires_grad_(True)

    learner, _ = fitted(logistic(lambda task: encoder(), strengths=(0.3,)), task)
    features = learner.module.backbone(task.train.x).double().numpy()
    model = LogisticRegression(C=0.3, max_iter=200).fit(features, task.train.labels.numpy())
    test = task.tests["test"]
    seen = learner.module.backbone(test.x).double().numpy()
    np.testing.assert_allclose(answered(learner, test), floored_answers(model, seen, 3), atol=2e-4)
    assert logistic(trained)(task, 0).module.backbone is None
    assert logistic(trained)(task, 0).module.width == WIDTH


def test_known_features_and_the_rows_they_are_of_get_the_same_answers(tmp_path):
    task = class_task(3)
    for name, method in simple_methods(task, lambda task: encoder(standardised=True)).items():
        learner = method(task, 0)
        known = with_known_features(task, learner, tmp_path)
        assert known.train.batch(torch.arange(1)).x is None
        learner.fit_at_once(known, 0, lambda done, total: None)
        of_features, of_rows = (answered(learner, t.tests["test"]) for t in (known, task))
        np.testing.assert_allclose(of_features, of_rows, atol=1e-4, err_msg=name)
        with pytest.raises(UserError, match="must be built with the frozen backbone"):
            fitted(logistic(), known)


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


def test_codes_of_nodes_are_counted():
    codes = torch.tensor([[1, 0], [1, 2], [0, 2]])
    batch = SimpleNamespace(x=codes, batch=torch.tensor([0, 0, 1]), num_graphs=2)
    found = vectors_of(batch, 11, codes=(2, 3))
    assert found[:, :5].tolist() == [[0, 2, 1, 0, 1], [1, 0, 0, 0, 1]]
    assert found[:, 5:10].tolist() == [[0, 1, 0.5, 0, 0.5], [1, 0, 0, 0, 1]]


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
    assert list(simple_methods(task)) == ["logistic", "neighbours", "kernel", "boosting"]
    assert list(simple_methods(Task(**{**task.__dict__, "kind": "image"}))) == [
        "logistic",
        "neighbours",
        "kernel",
    ]
    assert [title(name, task.target) for name in simple_methods(task)] == [
        "logistic regression",
        "nearest neighbours",
        "kernel ridge",
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

    def fit(self, x, y, sample_weight=None):
        seen.extend(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")
        return whole(self, x, y)

    whole = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", fit)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with threadpool_limits(2):
        fitted(logistic(strengths=(1.0,)), class_task(3))
    assert set(seen) == {1}
