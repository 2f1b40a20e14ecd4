"""The parts of the penalties against loops, autograd and numpy in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from hma.methods.penalties import (
    by_environment,
    feature_variance,
    gradient_penalty,
    mean_risk,
    risk_variance,
    row_gradients,
)
from hma.targets import Classes, Number, SoftClasses, YesNo


def drawn(environment: list[int], classes: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = len(environment)
    logits = 2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(max(classes, 2), (rows,), generator=generator)
    weight = torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1
    return logits, labels, weight


def members_of(environment: list[int]) -> dict[int, list[int]]:
    return {e: [i for i, own in enumerate(environment) if own == e] for e in set(environment)}


def risk_of(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """The weighted cross entropy of some rows, one after the other."""
    total = 0
    for row, label, own in zip(logits, labels, weight, strict=True):
        if len(row) == 1:
            loss = binary_cross_entropy_with_logits(row[0], label.double())
        else:
            loss = cross_entropy(row[None], label[None])
        total = total + own * loss
    return total / weight.sum()


def gradient_by_autograd(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    risk = risk_of(factor * logits, labels, weight)
    return torch.autograd.grad(risk, factor, create_graph=True)[0]


def penalty_by_autograd(logits, labels, weight, environment) -> Tensor:
    found = []
    for places in members_of(environment).values():
        if len(places) < 2:
            continue
        one, other = (
            gradient_by_autograd(logits[half], labels[half], weight[half])
            for half in (places[::2], places[1::2])
        )
        found.append(one * other)
    return sum(found) / max(len(found), 1) + 0 * logits.sum()


ENVIRONMENTS = st.lists(st.integers(-3, 4), min_size=1, max_size=24)


@settings(max_examples=40, deadline=None)
@given(ENVIRONMENTS, st.sampled_from([1, 2, 5]), st.booleans())
def test_the_gradient_penalty_and_its_gradient_are_those_of_autograd(environment, classes, even):
    logits, labels, weight = drawn(environment, classes)
    weight = torch.ones_like(weight) if even else weight
    logits.requires_grad_()
    rows = by_environment(torch.tensor(environment), None if even else weight, torch.float64)
    found = gradient_penalty(row_gradients(logits, labels, Classes(logits.shape[1])), rows)
    expected = penalty_by_autograd(logits, labels, weight, environment)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(value, logits)[0] for value in (found, expected)]
    torch.testing.assert_close(grads[0], grads[1])


@settings(max_examples=40, deadline=None)
@given(ENVIRONMENTS, st.sampled_from([1, 3]))
def test_risk_and_variance_are_those_of_numpy(environment, classes):
    logits, labels, weight = drawn(environment, classes)
    rows = by_environment(torch.tensor(environment), weight, torch.float64)
    groups = members_of(environment).values()
    risks = [float(risk_of(logits[g], labels[g], weight[g])) for g in groups]
    losses = Classes(logits.shape[1]).loss(logits, labels)
    assert float(mean_risk(losses, rows)) == pytest.approx(np.mean(risks))
    large = [risk for risk, group in zip(risks, groups, strict=True) if len(group) > 1]
    expected = np.var(large) if large else 0.0
    assert float(risk_variance(losses, rows)) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(ENVIRONMENTS)
def test_the_variance_of_features_is_that_of_numpy(environment):
    features = torch.randn(len(environment), 3, dtype=torch.float64)
    rows = by_environment(torch.tensor(environment), None, torch.float64)
    each = [
        np.var(features[places].numpy(), axis=0, ddof=1).mean()
        for places in members_of(environment).values()
        if len(places) > 1
    ]
    assert float(feature_variance(features, rows)) == pytest.approx(np.mean(each) if each else 0.0)


@pytest.mark.parametrize(
    "target", [Classes(1), Classes(2), Classes(4), SoftClasses(3), YesNo(2), Number(1.0, 2.0)]
)
def test_the_gradient_by_the_factor_is_that_of_a_difference_quotient(target):
    logits, labels, _ = drawn([0] * 6, target.outputs)
    if not isinstance(target, Classes):
        labels = target.prototypes()[torch.arange(6) % 2].double()
    step = 1e-6
    high, low = (target.loss(logits * factor, labels) for factor in (1 + step, 1 - step))
    torch.testing.assert_close(
        row_gradients(logits, labels, target), (high - low) / (2 * step), rtol=1e-6, atol=1e-8
    )


def test_the_product_of_halves_is_unbiased_where_the_square_is_not():
    generator = torch.Generator().manual_seed(0)
    logits, labels, _ = drawn([0] * 400, classes=3)
    gradients = row_gradients(logits, labels, Classes(logits.shape[1]))
    truth = float(gradients.mean()) ** 2
    products, squares = [], []
    for _ in range(4000):
        places = torch.randint(len(gradients), (8,), generator=generator)
        rows = by_environment(torch.zeros(8), None, torch.float64)
        products.append(float(gradient_penalty(gradients[places], rows)))
        squares.append(float(gradients[places].mean()) ** 2)
    noise = np.std(products) / np.sqrt(len(products))
    assert abs(np.mean(products) - truth) < 4 * noise
    assert np.mean(squares) - truth > 10 * noise


def test_rows_without_weight_change_nothing():
    environment = [0, 0, 1, 1, 0, 1, 2, 2]
    logits, labels, weight = drawn(environment, classes=3)
    weight[[4, 5]] = 0
    kept = [0, 1, 2, 3, 6, 7]

    def measures(places):
        rows = by_environment(torch.tensor(environment)[places], weight[places], torch.float64)
        losses = Classes(3).loss(logits[places], labels[places])
        gradients = row_gradients(logits[places], labels[places], Classes(3))
        return torch.stack(
            [
                mean_risk(losses, rows),
                risk_variance(losses, rows),
                gradient_penalty(gradients, rows),
            ]
        )

    torch.testing.assert_close(measures(range(8)), measures(kept))


def test_an_environment_without_any_weight_is_not_there():
    environment = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    logits, labels, weight = drawn([0] * 8, classes=2)
    weight[4:] = 0
    rows = by_environment(environment, weight, torch.float64)
    losses = Classes(logits.shape[1]).loss(logits, labels)
    alone = risk_of(logits[:4], labels[:4], weight[:4])
    torch.testing.assert_close(mean_risk(losses, rows), alone)
    assert float(risk_variance(losses, rows)) == 0
    expected = penalty_by_autograd(logits[:4], labels[:4], weight[:4], [0] * 4)
    torch.testing.assert_close(
        gradient_penalty(row_gradients(logits, labels, Classes(logits.shape[1])), rows), expected
    )


def test_a_batch_of_no_rows_has_no_penalty():
    rows = by_environment(torch.empty(0, dtype=torch.long), None, torch.float32)
    assert float(gradient_penalty(torch.empty(0), rows)) == 0
