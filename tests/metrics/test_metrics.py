"""Metrics of yes/no labels and numbers against scikit-learn, and what the table says of them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from hma.data import InMemory, Task
from hma.errors import UserError
from hma.extras import needed_beside_torchvision
from hma.metrics import METRICS, metric_for, recorded, scores
from hma.targets import Classes, Number, SoftClasses, YesNo


def yes_no_case(seed, rows, labels, rounded):
    """Logits, some of them equal, and labels of which some are missing."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, labels, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (rows, labels), generator=generator).double()
    y[torch.rand(rows, labels, generator=generator) < 0.3] = math.nan
    return (logits.round() if rounded else logits), y


def over_defined(score, logits, y, weights=None):
    """Return the mean of ``score`` over the labels that have both classes."""
    each = []
    for column, true in zip(logits.T.numpy(), y.T.numpy(), strict=True):
        known = ~np.isnan(true)
        weight = np.ones(len(true)) if weights is None else weights
        counted = known & (weight > 0)
        if len(set(true[counted])) == 2:
            each.append(score(true[counted], column[counted], sample_weight=weight[counted]))
    return np.mean(each) if each else math.nan


CASES = given(
    seed=st.integers(0, 10**6), rows=st.integers(1, 30), labels=st.integers(1, 4),
    rounded=st.booleans(),
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@CASES
def test_yes_no_scores_are_means_of_scikit_learns_over_labels_with_both_answers(
    seed, rows, labels, rounded
):
    logits, y = yes_no_case(seed, rows, labels, rounded)
    found = scores(logits, y, target=YesNo(labels))
    assert list(found) == ["auroc", "average precision", "nll"]
    for name, score in [("auroc", oracle.roc_auc_score),
                        ("average precision", oracle.average_precision_score)]:  # fmt: skip
        assert found[name] == pytest.approx(over_defined(score, logits, y), nan_ok=True)
    known = ~y.isnan().flatten()
    if known.any():
        true, said = y.flatten()[known], logits.sigmoid().flatten()[known]
        expected = oracle.log_loss(true, said, labels=[0, 1])
        assert found["nll"] == pytest.approx(expected)


@settings(deadline=None, max_examples=40)
@CASES
def test_weighted_yes_no_scores_are_scikit_learns_with_sample_weights(seed, rows, labels, rounded):
    logits, y = yes_no_case(seed, rows, labels, rounded)
    weights = np.random.default_rng(seed).integers(0, 4, (rows, 3)).astype(float)
    for name, score in [("auroc", oracle.roc_auc_score),
                        ("average precision", oracle.average_precision_score)]:  # fmt: skip
        found = METRICS[name].weighted(logits, y, YesNo(labels))(weights)
        expected = [over_defined(score, logits, y, column) for column in weights.T]
        np.testing.assert_allclose(found, expected)


@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 10**6), rows=st.integers(2, 200), classes=st.integers(2, 6),
    strength=st.sampled_from([-9.0, 0.0, 1.0, 9.0]), rounded=st.booleans(),
)  # fmt: skip
def test_scores_of_classes_are_those_of_torchmetrics_to_the_last_bit(
    seed, rows, classes, strength, rounded
):
    """Epochs are selected by them, so records of one table must be computed alike."""
    metrics = needed_beside_torchvision("torchmetrics.functional.classification", "the oracle")
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (rows,), generator=generator)
    y[:2] = torch.tensor([0, 1])
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    logits += strength * torch.nn.functional.one_hot(y, classes)
    logits = logits.round() if rounded else logits
    found = scores(logits, y, ["matthews", "auroc"])
    said = logits.argmax(1)
    if len(said.unique()) > 1:
        oracle = metrics.multiclass_matthews_corrcoef(said, y, num_classes=classes)
        assert found["matthews"] == float(oracle)
    chances = logits.log_softmax(1)
    sure = {1: logits[:, 1] - logits[:, 0]} if classes == 2 else dict(enumerate(chances.T))
    each = []
    for label in sure.keys() & set(y.tolist()):
        rank = torch.unique(sure[label], return_inverse=True)[1].double()
        rank /= max(float(rank.max()), 1.0)  # from 0 to 1: anything else would be squashed
        each.append(float(metrics.binary_auroc(rank, (y == label).long())))
    assert found["auroc"] == sum(each) / len(each)


def test_precision_at_the_share_of_yes_looks_at_as_many_rows_as_have_it():
    said = torch.tensor([[0.9], [0.8], [0.7], [0.6], [0.5], [0.4]])
    y = torch.tensor([[1.0], [0.0], [1.0], [1.0], [0.0], [0.0]])
    found = scores(said, y, ["r-precision"], target=YesNo(1))["r-precision"]
    assert found == pytest.approx(2 / 3)
    equal = said.clone()
    equal[2:5] = 0.7  # the third place is for one of three rows, two of which have a yes
    found = scores(equal, y, ["r-precision"], target=YesNo(1))["r-precision"]
    assert found == pytest.approx((1 + 2 / 3) / 3)
    twice = METRICS["r-precision"].weighted(said, y, YesNo(1))(np.array([[2.0, 0, 1, 1, 1, 1]]).T)
    assert twice[0] == 1
    nobody = scores(said, torch.zeros(6, 1), ["r-precision"], target=YesNo(1))["r-precision"]
    assert math.isnan(nobody)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), rows=st.integers(2, 30))
def test_errors_of_numbers_are_those_of_scikit_learn(seed, rows):
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(rows, 1, generator=generator)
    y = 5 + 3 * torch.randn(rows, generator=generator)
    target = Number(centre=4.0, scale=2.5)
    said = 4.0 + 2.5 * outputs[:, 0].double().numpy()
    weights = 0.5 + np.random.default_rng(seed).random(rows)
    compared = {
        "rmse": oracle.root_mean_squared_error,
        "mae": oracle.mean_absolute_error,
        "r2": oracle.r2_score,
    }
    assert list(scores(outputs, y, target=target)) == list(compared)
    for name, score in compared.items():
        found = scores(outputs, y, [name], target=target)[name]
        assert found == pytest.approx(score(y, said))
        weighted = METRICS[name].weighted(outputs, y, target)(weights[:, None])
        assert weighted[0] == pytest.approx(score(y, said, sample_weight=weights))


def test_numbers_that_do_not_vary_have_no_share_explained():
    assert math.isnan(scores(torch.zeros(3, 1), torch.ones(3), ["r2"], target=Number())["r2"])


def test_soft_labels_are_scored_by_their_likeliest_class_and_their_cross_entropy():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    y = torch.tensor([[0.8, 0.2], [0.6, 0.4], [1.0, 0.0]])
    found = scores(logits, y, target=SoftClasses(2))
    assert found["accuracy"] == pytest.approx(2 / 3)
    expected = -(y.double() * logits.double().log_softmax(1)).sum(1).mean()
    assert found["nll"] == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("target", "first"),
    [(Classes(3), "accuracy"), (SoftClasses(3), "accuracy"), (YesNo(2), "auroc"),
     (Number(), "rmse")],
)  # fmt: skip
def test_a_task_is_selected_by_the_first_metric_of_its_target(target, first):
    rows = InMemory(torch.zeros(2, 1), target.prototypes()[:2])
    task = Task("few", "table", ("a", "b", "c"), (1,), rows, rows, {}, target=target)
    assert task.metric == first == recorded(target)[0].name


def test_a_metric_of_other_labels_is_refused():
    with pytest.raises(UserError, match="metric must be one of 'rmse', 'mae', 'r2' for number"):
        metric_for(Number(), "accuracy")


def test_the_better_of_two_scores_goes_by_the_direction_and_is_never_undefined():
    assert METRICS["accuracy"].better(0.9, 0.8)
    assert METRICS["rmse"].better(0.8, 0.9)
    for name in METRICS:
        assert not METRICS[name].better(math.nan, 0.5)
