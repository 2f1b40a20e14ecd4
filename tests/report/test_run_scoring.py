"""Two methods on the same rows: counts by hand, intervals that fit, mistakes refused."""

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix

from hma.errors import UserError
from hma.report.run.scoring import Answers, compare
from hma.report.run.trial import MEMORY, PLAIN
from hma.targets import Classes


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
    return compare("test", found, given.pop("metric", "accuracy"), **given)


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
    trial = compare("test", run.answers, "accuracy", target=Classes(3), resamples=20, seed=0)
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
    with pytest.raises(ValueError, match=r"logits of HMA on 'test' in context 'alone' must"):
        judged(found)


def test_answers_of_the_memory_are_needed():
    with pytest.raises(ValueError, match="memory must hold the logits of HMA on 'test'"):
        judged(Answers(labels=torch.tensor([0]), memory={}, plain={}))
