"""Two methods on the same rows: counts by hand, intervals that fit, mistakes refused."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle
from sklearn.metrics import confusion_matrix

from hma.errors import UserError
from hma.metrics import METRICS
from hma.metrics.resampling import resample_counts
from hma.report.run_report import MEMORY, PLAIN
from hma.report.scoring import Answers, compare, shown_metrics
from hma.targets import Classes, Number, YesNo


def answers(plain_right, memory_right, labels=None):
    """Return logits of two classes that are right on the given rows."""
    labels = torch.zeros(len(memory_right), dtype=torch.long) if labels is None else labels

    def logits(right):
        said = torch.where(torch.tensor(right, dtype=torch.bool), labels, 1 - labels)
        return 2.0 * torch.nn.functional.one_hot(said, 2).float()

    plain = {} if plain_right is None else {"alone": logits(plain_right)}
    return Answers(labels=labels, memory={"batch": logits(memory_right)}, plain=plain)


def judged(found, **changes):
    given = {"target": Classes(2), "resamples": 400, "seed": 0} | changes
    metrics = shown_metrics(given["target"], given.pop("metric", "accuracy"))
    return compare("test", [found], metrics, **given)


def test_rows_that_only_one_gets_right_are_counted():
    trial = judged(answers([1, 1, 0, 0, 1, 0], [1, 0, 1, 1, 1, 0], torch.arange(6) % 2))
    (found,) = trial.comparisons
    assert (found.only_plain, found.only_other) == (1, 2)
    assert found.differences["accuracy"].value == pytest.approx(1 / 6)
    assert found.p_value == 1.0


def test_equal_answers_differ_by_nothing():
    right = [1, 0, 1, 1, 0, 1]
    (found,) = judged(answers(right, right, torch.arange(6) % 2)).comparisons
    ends = found.differences["accuracy"]
    assert (ends.value, ends.low, ends.high, found.p_value) == (0, 0, 0, 1)


def test_a_large_difference_leaves_zero_out():
    (found,) = judged(answers([0] * 40 + [1] * 60, [1] * 100, torch.arange(100) % 2)).comparisons
    assert 0.3 < found.differences["accuracy"].low < 0.4 < found.differences["accuracy"].high < 0.5
    assert found.p_value == pytest.approx(2 * 0.5**40)


def test_the_confusion_matrix_is_scikit_learns(run):
    trial = compare("test", [run.answers], ["accuracy"], target=Classes(3), resamples=20)
    labels = run.answers.labels.numpy()
    said = {PLAIN: run.answers.plain, MEMORY: run.answers.memory}
    for result in trial.results:
        predicted = said[result.method][result.context].argmax(1).numpy()
        np.testing.assert_array_equal(result.confusion, confusion_matrix(labels, predicted))


def test_all_right_is_not_taken_for_certainty():
    (result,) = judged(answers(None, [1] * 20)).results
    score = result.scores["accuracy"]
    assert score.value == score.high == 1
    assert score.low < 0.85  # the bootstrap alone would say 1


def test_one_logit_tells_two_classes_apart():
    found = Answers(
        labels=torch.tensor([0, 1, 1]), memory={"alone": torch.tensor([[-2.0], [3.0], [-1.0]])},
        plain={},
    )  # fmt: skip
    (result,) = judged(found).results
    assert result.confusion.tolist() == [[1, 0], [1, 1]]
    assert result.scores["auroc"].value == 1.0


def test_the_same_seed_gives_the_same_intervals():
    found = answers([1, 0, 1, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1, 0], torch.arange(7) % 2)
    first, again, other = judged(found), judged(found), judged(found, seed=1, resamples=401)
    assert first.comparisons == again.comparisons
    assert first.comparisons[0].p_value == other.comparisons[0].p_value


def test_labels_outside_the_classes_are_named():
    with pytest.raises(
        UserError, match=r"'test' cannot be scored: y must .* from 0 to 1, got -1; leave"
    ):
        judged(Answers(labels=torch.tensor([0, -1]), memory={"a": torch.zeros(2, 2)}, plain={}))


def test_an_empty_test_set_is_refused():
    with pytest.raises(UserError, match="the test set 'test' has no rows"):
        judged(answers(None, []))


def test_logits_that_are_not_finite_are_refused():
    found = Answers(
        labels=torch.tensor([0, 1]), memory={"alone": torch.tensor([[0.0, 1.0], [torch.nan, 0.0]])},
        plain={},
    )  # fmt: skip
    with pytest.raises(UserError, match="not finite in 1 of 2 rows, so training diverged"):
        judged(found)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2,)])
def test_logits_of_another_shape_are_refused(shape):
    found = Answers(labels=torch.tensor([0, 1]), memory={"alone": torch.zeros(shape)}, plain={})
    with pytest.raises(ValueError, match=r"logits of memory on 'test' in context 'alone' must"):
        judged(found)


def test_answers_of_the_memory_are_needed():
    with pytest.raises(ValueError, match="memory must hold the logits of the memory on 'test'"):
        judged(Answers(labels=torch.tensor([0]), memory={}, plain={}))


def metrics_of(logits, labels, headline):
    target = Classes(logits.shape[1])
    names = shown_metrics(target, headline)
    return {name: METRICS[name].weighted(logits.double(), labels, target) for name in names}


def log_probabilities(generator, rows, classes, steps=None):
    found = generator.dirichlet(np.ones(classes), rows)
    if steps:  # few different values, so that scores tie
        found = np.round(found * steps) + 0.5
        found /= found.sum(axis=1, keepdims=True)
    return np.log(found)


def expected(name, labels, sure):
    """Return scikit-learn's value, and NaN where a metric needs a class that is not there."""
    classes = sure.shape[1]
    said = sure.argmax(axis=1)
    present = [c for c in range(classes) if 0 < (labels == c).sum() < len(labels)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of absent classes
        if name == "accuracy":
            return oracle.accuracy_score(labels, said)
        if name == "balanced accuracy":
            return oracle.recall_score(
                labels, said, average="macro", labels=np.unique(labels), zero_division=0
            )
        if name == "macro F1":
            return oracle.f1_score(labels, said, average="macro", zero_division=0)
        if name == "matthews":
            return oracle.matthews_corrcoef(labels, said)
        if name == "nll":
            return oracle.log_loss(labels, np.exp(sure), labels=np.arange(classes))
        if not present:
            return math.nan
        if classes == 2:
            return oracle.roc_auc_score(labels, sure[:, 1] - sure[:, 0])
        return np.mean([oracle.roc_auc_score(labels == c, sure[:, c]) for c in present])


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 25),
    classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    steps=st.sampled_from([None, 3]),
    headline=st.sampled_from(["accuracy", "auroc", "matthews"]),
)
def test_metrics_of_resamples_are_scikit_learns_of_the_repeated_rows(
    rows, classes, seed, steps, headline
):
    generator = np.random.default_rng(seed)
    logits = torch.from_numpy(log_probabilities(generator, rows, classes, steps))
    sure = logits.log_softmax(dim=1).numpy()
    labels = generator.integers(classes, size=rows)
    (counts,) = resample_counts(rows, 3, seed)
    counts[:, 0] = 1  # the rows themselves
    for name, metric in metrics_of(logits, torch.from_numpy(labels), headline).items():
        values = metric(counts)
        for r in range(3):
            drawn = np.repeat(np.arange(rows), counts[:, r].astype(int))
            want = expected(name, labels[drawn], sure[drawn])
            assert values[r] == pytest.approx(want, abs=1e-9, nan_ok=True), name


@pytest.mark.parametrize(
    ("target", "headline", "rest"),
    [
        (Classes(2), "matthews", ["accuracy", "balanced accuracy", "macro F1", "auroc", "nll"]),
        (Classes(3), "accuracy", ["balanced accuracy", "macro F1", "nll"]),
        (Classes(3), "auroc", ["accuracy", "balanced accuracy", "macro F1", "nll"]),
        (Number(), "rmse", ["mae", "r2"]),
        (YesNo(4), "auroc", ["average precision", "nll"]),
    ],
)
def test_the_headline_comes_first_and_then_what_the_labels_can_be_scored_by(target, headline, rest):
    assert shown_metrics(target, headline) == [headline, *rest]


def test_an_unknown_headline_is_refused():
    with pytest.raises(ValueError, match=r"headline must be one of 'accuracy'.*got 'speed'"):
        shown_metrics(Classes(2), "speed")


def test_scores_too_sure_to_tell_apart_as_probabilities_still_rank():
    logits = torch.tensor([[0.0, 40.0], [0.0, 50.0]]).double()
    assert logits.softmax(dim=1)[:, 1].tolist() == [1.0, 1.0]  # in 64 bits
    area = metrics_of(logits, torch.tensor([0, 1]), "auroc")["auroc"]
    assert area(np.ones((2, 1))) == [1.0]
