"""Every kind of label against scikit-learn, or against loops in float64."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import log_loss

from hma.errors import UserError
from hma.targets import (
    KINDS,
    Classes,
    Number,
    SoftClasses,
    YesNo,
    one_target,
    target_from_json,
)

NAN = math.nan
TARGETS = [Classes(1), Classes(4), SoftClasses(3), YesNo(1), YesNo(3), Number(3.0, 0.5)]
sizes = st.integers(1, 12)
seeds = st.integers(0, 10_000)


def drawn(target, count, seed, missing=0.0):
    """Return logits and labels of ``count`` rows, as a user gives them."""
    draw = np.random.default_rng(seed)
    logits = 3 * draw.normal(size=(count, target.outputs))
    if isinstance(target, Classes):
        y = draw.integers(max(target.count, 2), size=count)
    elif isinstance(target, SoftClasses):
        y = draw.dirichlet(np.ones(target.count), size=count)
    elif isinstance(target, YesNo):
        y = draw.integers(2, size=(count, target.count)).astype(float)
        y[draw.random(y.shape) < missing] = NAN
    else:
        y = 100 * draw.normal(size=count)
    return torch.tensor(logits), torch.tensor(y)


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


# ------------------------------------------------------------------ loss


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), sizes, seeds)
def test_the_loss_of_classes_is_the_log_loss_of_scikit_learn(classes, count, seed):
    target = Classes(classes)
    logits, y = drawn(target, count, seed)
    both = logits if classes > 1 else torch.cat([torch.zeros(count, 1), logits], dim=1)
    shares = softmax(both.numpy(), axis=1)
    expected = log_loss(y, shares, labels=range(target.table_rows))
    assert float(target.loss(logits, y).mean()) == pytest.approx(expected)
    np.testing.assert_allclose(target.expected(logits), shares, atol=1e-6)
    assert target.decide(logits).tolist() == shares.argmax(axis=1).tolist()


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 6), sizes, seeds)
def test_the_loss_of_soft_classes_is_the_mean_of_those_of_classes_by_their_shares(c, count, seed):
    logits, y = drawn(SoftClasses(c), count, seed)
    by_class = [Classes(c).loss(logits, torch.full((count,), k)) for k in range(c)]
    expected = sum(share * loss for share, loss in zip(y.T, by_class, strict=True))
    torch.testing.assert_close(SoftClasses(c).loss(logits, y), expected)
    ids = y.argmax(dim=1)
    whole = SoftClasses(c).check(ids, count)
    torch.testing.assert_close(SoftClasses(c).loss(logits, whole), Classes(c).loss(logits, ids))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), sizes, seeds, st.sampled_from([0.0, 0.4, 1.0]))
def test_the_loss_of_yes_and_no_is_the_mean_over_the_labels_that_are_there(c, count, seed, missing):
    logits, y = drawn(YesNo(c), count, seed, missing)
    expected = []
    for row, answers in zip(logits.tolist(), y.tolist(), strict=True):
        pairs = [(sigmoid(z), a) for z, a in zip(row, answers, strict=True) if not math.isnan(a)]
        losses = [-math.log(p if a else 1 - p) for p, a in pairs]
        expected.append(sum(losses) / max(len(losses), 1))
    found = YesNo(c).loss(logits, y)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    as_ids = torch.where(y.isnan(), -1.0, y).long()
    torch.testing.assert_close(YesNo(c).loss(logits, as_ids), found)


def test_a_missing_label_gives_no_gradient():
    logits = torch.randn(2, 3, requires_grad=True)
    YesNo(3).loss(logits, torch.tensor([[1.0, NAN, 0.0], [NAN, NAN, NAN]])).sum().backward()
    assert (logits.grad != 0).tolist() == [[True, False, True], [False, False, False]]


@settings(deadline=None, max_examples=40)
@given(sizes, seeds, st.floats(-1e3, 1e3), st.floats(1e-2, 1e3))
def test_the_loss_of_a_number_is_the_squared_error_in_units_of_its_scale(count, seed, mean, scale):
    target = Number(mean, scale)
    logits, y = drawn(target, count, seed)
    pairs = zip(logits[:, 0].tolist(), y.tolist(), strict=True)
    expected = torch.tensor([(z - (v - mean) / scale) ** 2 for z, v in pairs]).double()
    torch.testing.assert_close(target.loss(logits, y), expected, rtol=1e-5, atol=1e-6)
    assert target.expected(logits).tolist() == pytest.approx(
        [z * scale + mean for z in logits[:, 0].tolist()]
    )
    torch.testing.assert_close(target.given(target.check(y, count)), y)


# ------------------------------------------------------------------ the label half of a token


def rows_of_the_table(target, label):
    """Return what a stored label takes of which row of the label table, as pairs."""
    mask = target.table_rows
    if isinstance(target, Classes):
        return [(mask if label == -1 else int(label), 1.0)]
    if isinstance(target, Number):
        return [(mask, 1.0)] if math.isnan(label) else [(0, 1.0), (1, label)]
    known = [(place, value) for place, value in enumerate(label) if not math.isnan(value)]
    if not known:
        return [(mask, 1.0)]
    if isinstance(target, SoftClasses):
        return known
    return [(2 * place + int(value), 1 / len(known)) for place, value in known]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(TARGETS), sizes, seeds)
def test_an_embedding_is_the_sum_over_the_rows_of_the_table_that_a_label_takes(target, count, seed):
    _, y = drawn(target, count, seed, missing=0.4)
    known = target.check(y, count)
    stored = torch.cat([known, target.unknown(2).to(known.dtype)])
    table = torch.randn(target.table_rows + 1, 5, dtype=torch.float64)
    expected = torch.zeros(count + 2, 5, dtype=torch.float64)
    mix = torch.zeros(count + 2, target.table_rows + 1, dtype=torch.float64)
    for place, label in enumerate(stored.tolist()):
        for row, share in rows_of_the_table(target, label):
            expected[place] += share * table[row]
            mix[place, row] += share
    torch.testing.assert_close(target.embed(stored, table), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(target.mix(stored).double(), mix, rtol=1e-5, atol=1e-6)
    assert not target.membership(target.unknown(2)).any()


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_prototype_belongs_to_itself_alone(target):
    found = target.membership(target.prototypes()).double()
    torch.testing.assert_close(found, torch.eye(len(found), dtype=torch.float64))


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("target", "y", "message"),
    [
        (Classes(3), [0, 3], r"y must hold class ids from 0 to 2, got 3"),
        (Classes(3), [-1, 0], r"y must hold class ids from 0 to 2, got -1"),
        (Classes(1), [0, 2], r"y must hold class ids from 0 to 1, got 2"),
        (Classes(3), [[0], [1]], r"y must have shape \(2,\), got \(2, 1\)"),
        (SoftClasses(2), [[1.0, 0.0], [0.5, 0.6]], r"sum to 1, got \[0.5, 0.6.*\] in row 1"),
        (SoftClasses(2), [[1.0, 0.0], [1.5, -0.5]], r"at least 0 .*got \[1.5, -0.5\] in row 1"),
        (SoftClasses(2), [[1.0, 0.0], [NAN, 1.0]], r"got \[nan, 1.0\] in row 1"),
        (SoftClasses(2), [0, 2], r"y must hold class ids from 0 to 1, got 2"),
        (SoftClasses(2), [[1.0], [1.0]], r"y must have shape \(2, 2\), got \(2, 1\)"),
        (YesNo(2), [[0.0, 1.0], [0.5, 1.0]], r"0, 1, and NaN or -1 .*got \[0.5, 1.0\] in row 1"),
        (YesNo(2), [[0, 1], [2, 1]], r"got \[2.0, 1.0\] in row 1"),
        (YesNo(2), [0, 1], r"y must have shape \(2, 2\), got \(2,\)"),
        (Number(), [1.0, math.inf], r"y must hold finite numbers, got inf"),
        (Number(), [1.0, NAN], r"y must hold finite numbers, got nan"),
        (Number(), [[1.0, 2.0]], r"y must have shape \(2,\), got \(1, 2\)"),
    ],
)
def test_labels_that_do_not_fit_are_named(target, y, message):
    with pytest.raises(ValueError, match=message):
        target.check(torch.tensor(y), 2)


def test_floats_are_no_class_ids():
    with pytest.raises(TypeError, match=r"integer dtype, got torch.float32 .*SoftClasses"):
        Classes(3).check(torch.tensor([0.0, 1.0]), 2)


@pytest.mark.parametrize(
    ("target", "y"),
    [
        (Classes(3), [1, 99]),
        (SoftClasses(2), [[0.25, 0.75], [7.0, NAN]]),
        (SoftClasses(3), [1, 99]),
        (YesNo(2), [[0.0, 1.0], [7.0, NAN]]),
        (Number(5.0, 2.0), [1.0, math.inf]),
    ],
    ids=str,
)
def test_rows_to_ignore_are_not_looked_at(target, y):
    y = torch.tensor(y)
    with pytest.raises(ValueError, match="y must hold"):
        target.check(y, 2)
    found = target.check(y, 2, ignore=torch.tensor([False, True]))
    torch.testing.assert_close(found[:1], target.check(y[:1], 1))
    assert target.mix(found).isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classes(0), "num_classes must be at least 1"),
        (lambda: Classes(2.0), "num_classes must be at least 1"),
        (lambda: SoftClasses(1), "count must be at least 2"),
        (lambda: YesNo(0), "count must be at least 1"),
        (lambda: Number(NAN), "centre must be finite, got nan"),
        (lambda: Number(0.0, 0.0), "above 0, got 0.0; a label that is the same in every row"),
        (lambda: Number(0.0, math.inf), "scale must be finite and above 0, got inf"),
    ],
)
def test_a_target_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ------------------------------------------------------------------ by name


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_target_survives_json(target):
    assert target_from_json(json.loads(json.dumps(target.to_json()))) == target


def test_every_kind_has_a_name_of_its_own():
    assert len({kind.kind for kind in KINDS}) == len(KINDS) == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "colour", "count": 3}, "must be one of 'classes', .*got 'colour'"),
        ({"count": 3}, "got None"),
        ({"kind": "classes", "size": 3}, "the target is damaged: .*size"),
        ({"kind": "classes"}, "the target is damaged: .*count"),
    ],
)
def test_a_description_of_no_target_is_refused(values, message):
    with pytest.raises(UserError, match=message):
        target_from_json(values)


def test_a_number_of_classes_and_a_target_are_not_given_together():
    assert one_target(3, None) == Classes(3)
    assert one_target(None, YesNo(2)) == YesNo(2)
    with pytest.raises(TypeError, match="got neither"):
        one_target(None, None)
    with pytest.raises(TypeError, match=r"got 3 and YesNo\(count=2\)"):
        one_target(3, YesNo(2))


# ------------------------------------------------------------------ one answer of several


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(TARGETS), sizes, st.integers(1, 4), seeds)
def test_a_mixed_answer_is_the_mean_of_probabilities_or_of_numbers(target, count, answers, seed):
    said = [drawn(target, count, seed + i)[0] for i in range(answers)]
    shares = np.random.default_rng(seed).dirichlet(np.ones(answers))
    mixed = target.mix_logits(said, shares.tolist())
    for row in range(count):
        for k in range(target.outputs):
            if isinstance(target, Number):
                expected = sum(w * z[row, 0] for w, z in zip(shares, said, strict=True))
                assert float(mixed[row, 0]) == pytest.approx(float(expected))
                continue
            one = target.outputs == 1 or isinstance(target, YesNo)
            each = [sigmoid(z[row, k]) if one else softmax(z[row].numpy())[k] for z in said]
            mean = sum(w * p for w, p in zip(shares, each, strict=True))
            expected = math.log(mean / (1 - mean)) if one else math.log(mean)
            assert float(mixed[row, k]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_mixed_answer_survives_what_is_too_sure_for_a_probability():
    sure, unsure = torch.tensor([[800.0, -800.0]]), torch.tensor([[0.0, 0.0]])
    mixed = Classes(2).mix_logits([sure, unsure], [0.5, 0.5])
    assert mixed.exp().tolist() == [pytest.approx([0.75, 0.25])]
    assert YesNo(2).mix_logits([sure, unsure], [0.5, 0.5]).sigmoid().tolist() == [
        pytest.approx([0.75, 0.25])
    ]
    alone = Classes(2).mix_logits([sure, unsure], [0.0, 1.0])
    assert alone.exp().tolist() == [[0.5, 0.5]]


def test_a_mixed_answer_needs_a_share_for_each():
    with pytest.raises(ValueError, match=r"one number for each of 2 answers, got 1"):
        Classes(2).mix_logits([torch.zeros(1, 2)] * 2, [1.0])


def test_classes_can_be_added_to_targets_over_classes_alone():
    assert Classes(3).grown(2) == Classes(5, added=2)
    assert SoftClasses(3).grown(1).grown(1) == SoftClasses(5, added=2)
    for target in (Number(), YesNo(2)):
        with pytest.raises(
            UserError, match=f"cannot be added to labels of the kind '{target.kind}"
        ):
            target.grown(1)


@pytest.mark.parametrize(
    ("target", "expected", "answer", "label", "known", "nothing"),
    [
        (Classes(2), [0.25, 0.75], "b (75.0%)", 1, "b", -1),
        (SoftClasses(2), [0.5, 0.5], "a (50.0%)", [0.0, 1.0], "b 100%", [math.nan, math.nan]),
        (YesNo(2), [0.5, 0.75], "a no (50.0%), b yes (75.0%)", [1.0, math.nan], "yes to a",
         [math.nan, math.nan]),
        (Number(), 0.125, "a 0.125", 3.0, "3", math.nan),
    ],
)  # fmt: skip
def test_answers_and_labels_are_written_by_their_target(
    target, expected, answer, label, known, nothing
):
    assert target.answer_text(["a", "b"], expected) == answer
    assert target.label_text(["a", "b"], label) == known
    assert target.label_text(["a", "b"], nothing) == ""
