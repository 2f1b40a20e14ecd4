"""Scores against scikit-learn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle
from training_cases import MEMORY, Plain, memory_learner, plain_learner, small_task

from hma.data import InMemory
from hma.errors import UserError
from hma.metrics import scores
from hma.training import evaluate, evaluation, evaluation_order, predictions


@st.composite
def answers(draw):
    """Logits, some of them equal, and labels, some classes perhaps absent."""
    count, classes = draw(st.integers(1, 40)), draw(st.integers(2, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    scale = draw(st.sampled_from([0.5, 5.0, 200.0]))  # large ones saturate a softmax
    logits = scale * torch.randn(count, classes, generator=generator)
    if draw(st.booleans()):
        logits = logits.round()
    return logits, torch.randint(classes, (count,), generator=generator)


@settings(deadline=None, max_examples=60)
@given(answers())
def test_accuracy_matthews_and_nll_are_those_of_scikit_learn(case):
    logits, labels = case
    found, predicted = scores(logits, labels), logits.argmax(1)
    assert found["accuracy"] == oracle.accuracy_score(labels, predicted)
    with_one_class = len(set(labels.tolist())) < 2 or len(set(predicted.tolist())) < 2
    expected = 0.0 if with_one_class else oracle.matthews_corrcoef(labels, predicted)
    assert found["matthews"] == pytest.approx(expected, abs=1e-5)
    chances = logits.double().log_softmax(1)
    mean = -sum(float(chances[i, label]) for i, label in enumerate(labels)) / len(labels)
    assert found["nll"] == pytest.approx(mean, rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(answers())
def test_auroc_is_that_of_scikit_learn(case):
    logits, labels = case
    found = scores(logits, labels, ["auroc"])["auroc"]
    present = sorted(set(labels.tolist()))
    if len(present) < 2:
        assert math.isnan(found)
        return
    chances = logits.double().log_softmax(1)
    if logits.shape[1] == 2:
        expected = oracle.roc_auc_score(labels, (logits[:, 1] - logits[:, 0]).double())
    else:
        each = [oracle.roc_auc_score(labels == label, chances[:, label]) for label in present]
        expected = sum(each) / len(each)
    assert found == pytest.approx(expected, abs=1e-6)


def test_one_logit_is_a_binary_problem():
    logit = torch.tensor([[2.0], [-1.0], [0.5], [-3.0]])
    labels = torch.tensor([1, 0, 0, 1])
    found = scores(logit, labels)
    assert found["accuracy"] == 0.5
    assert found["auroc"] == oracle.roc_auc_score(labels, logit[:, 0])
    expected = oracle.log_loss(labels, torch.sigmoid(logit[:, 0].double()))
    assert found["nll"] == pytest.approx(expected, rel=1e-6)


class Counting(InMemory):
    """Rows that count how many of them were asked for."""

    asked = 0

    def batch(self, places, epoch=None):
        self.asked += len(places)
        return super().batch(places, epoch)


def test_predictions_stream_and_agree_with_one_big_batch():
    task = small_task()
    learner = memory_learner(task)
    split = Counting(task.tests["near"].x, task.tests["near"].labels)
    learner.module.train()  # they switch to eval mode themselves
    stream = predictions(learner, split, batch_size=8, context="alone")
    assert split.asked == 0
    first = next(stream)
    assert split.asked == 8  # nothing is read ahead
    found = [first, *stream]
    ids = torch.cat([ids for ids, _ in found])
    assert ids.tolist() == list(range(50))
    logits = torch.cat([logits for _, logits in found])
    assert not logits.requires_grad
    learner.model.context = "alone"
    with torch.no_grad():
        torch.testing.assert_close(logits, learner.model.eval()(split.x), rtol=1e-5, atol=1e-6)


def test_an_empty_split_has_no_predictions():
    empty = InMemory(torch.empty(0, 6), torch.empty(0, dtype=torch.long))
    assert list(predictions(plain_learner(small_task()), empty, batch_size=4)) == []


def test_scores_come_for_every_context_of_the_learner():
    task = small_task()
    learner = memory_learner(task)
    found = evaluate(learner, task.tests["near"], batch_size=16)
    assert list(found) == ["batch", "batch-sorted", "alone"]
    shuffled = torch.randperm(50, generator=torch.Generator().manual_seed(50))
    for context, values in found.items():
        order = shuffled if context == "batch" else torch.arange(50)
        logits = loop_over(learner.model, task.tests["near"].x[order], 16, context)
        assert values == pytest.approx(scores(logits, task.tests["near"].labels[order]))
    assert found["batch"] != found["alone"]


def test_rows_are_encoded_once_for_all_contexts_unless_features_are_too_many(monkeypatch):
    task = small_task()
    learner = memory_learner(task)
    split = Counting(task.tests["near"].x, task.tests["near"].labels)
    once = evaluate(learner, split, batch_size=16)
    assert split.asked == 50
    monkeypatch.setattr(evaluation, "MOST_KEPT", 50 * learner.model.feature_dim - 1)
    each = evaluate(learner, split, batch_size=16)
    assert split.asked == 50 + 3 * 50
    for context, values in each.items():
        assert once[context] == pytest.approx(values, rel=1e-5)


@torch.no_grad()
def loop_over(model, x, batch_size, context):
    """Return the logits of rows in the order given, batch by batch."""
    model.eval().context = "alone" if context == "alone" else "batch"
    return torch.cat([model(part) for part in x.split(batch_size)])


def by_class(split):
    """Return the rows of a split, those of a class together, as in many a file."""
    order = split.labels.argsort(stable=True)
    return InMemory(split.x[order], split.labels[order])


def test_company_of_the_own_class_alone_changes_scores():
    task = small_task()
    split = by_class(task.tests["near"])
    found = evaluate(memory_learner(task, backbone=Plain), split, batch_size=10)
    assert found["batch"]["nll"] != pytest.approx(found["batch-sorted"]["nll"], rel=1e-3)


def test_alone_is_the_same_in_any_order():
    task = small_task()
    split, learner = task.tests["near"], memory_learner(task, backbone=Plain)
    found, other = (evaluate(learner, s, batch_size=10)["alone"] for s in (split, by_class(split)))
    assert found == pytest.approx(other, rel=1e-5)


@pytest.mark.parametrize("context", ["batch", "batch-sorted", "alone"])
def test_predictions_are_those_that_were_scored(context):
    task = small_task()
    split, learner = by_class(task.tests["near"]), memory_learner(task, backbone=Plain)
    said = list(predictions(learner, split, batch_size=16, context=context))
    ids, logits = torch.cat([i for i, _ in said]), torch.cat([part for _, part in said])
    assert sorted(ids.tolist()) == list(range(50))
    assert (ids.tolist() == list(range(50))) == (context != "batch")
    expected = evaluate(learner, split, batch_size=16, contexts=[context])[context]
    assert scores(logits, split.labels[ids]) == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 300))
def test_the_order_of_evaluation_depends_on_the_number_of_rows_alone(rows):
    torch.manual_seed(rows + 1)
    found = evaluation_order("batch", rows)
    torch.manual_seed(rows + 2)
    assert torch.equal(evaluation_order("batch", rows), found)
    assert sorted(found.tolist()) == list(range(rows))
    for context in ("batch-sorted", "alone"):
        assert evaluation_order(context, rows).tolist() == list(range(rows))


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, 3], "labels must be from 0 to 2, got 0 to 3"), ([-1, 2], "got -1 to 2"),
     ([1], r"got shapes \(1,\) and \(2, 3\)")],
)  # fmt: skip
def test_labels_that_do_not_fit_the_logits_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        scores(torch.zeros(2, 3), torch.tensor(labels))


def test_a_split_without_rows_cannot_be_scored():
    empty = InMemory(torch.empty(0, 6), torch.empty(0, dtype=torch.long))
    with pytest.raises(UserError, match="split must have at least one row"):
        evaluate(plain_learner(small_task()), empty, batch_size=4)


def test_an_unknown_context_is_refused_with_the_known_ones():
    task = small_task()
    with pytest.raises(
        UserError, match="one of 'batch', 'batch-sorted', 'alone', got 'alnoe'; did you"
    ):
        list(predictions(memory_learner(task, config=MEMORY), task.train, batch_size=4,
                         context="alnoe"))  # fmt: skip
