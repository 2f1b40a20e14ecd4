"""Weighted metrics against scikit-learn, on the rows and on every resample of them."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from hma.metrics import METRICS
from hma.metrics.resampling import resampled
from hma.report.run.scoring import shown_metrics
from hma.targets import Classes, Number, YesNo


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
    (counts,) = resampled(rows, 3, seed)
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
