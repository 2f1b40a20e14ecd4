"""The contrastive loss against its definition as loops, and what rows are compared with."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from hma import HMA, ConfigError, HMAConfig
from hma.attention.contrast import LabelledKeys, supervised_contrast
from hma.targets import Classes, Number, SoftClasses, YesNo

CONFIG = HMAConfig(label_dim=4, queue_size=8, slots_per_class=1, num_heads=2, dropout=0.0)


def by_hand(keys, membership, others, other_membership, hidden, temperature):
    """The definition, one pair at a time."""
    found = []
    for i, key in enumerate(keys):
        seen = [j for j in range(len(others)) if not hidden[i][j] and sum(other_membership[j]) > 0]
        apart = [float(key @ others[j] / key.norm() / others[j].norm()) for j in seen]
        scores = [math.exp(value / temperature) for value in apart]
        agree = [float(membership[i] @ other_membership[j]) for j in seen]
        logs = [a * math.log(s / sum(scores)) for a, s in zip(agree, scores, strict=True)]
        found.append(-sum(logs) / sum(agree) if sum(agree) else 0.0)
    return torch.tensor(found, dtype=torch.float64)


def labelled(keys, membership):
    return LabelledKeys(keys, membership, torch.arange(len(keys)))


def memberships(kind, count):
    """Labels of a kind as the memory stores them, what they belong to."""
    if kind == "classes":
        return Classes(3).membership(torch.randint(3, (count,))).double()
    if kind == "soft":
        return SoftClasses(3).membership(torch.rand(count, 3).softmax(dim=1)).double()
    y = torch.randint(2, (count, 2)).float()
    y[torch.rand(count, 2) < 0.3] = math.nan
    return YesNo(2).membership(y).double()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("kind", ["classes", "soft", "yes/no"])
def test_the_loss_is_its_definition(kind, temperature):
    keys, others = torch.randn(5, 4).double(), torch.randn(9, 4).double()
    rows, more, hidden = memberships(kind, 5), memberships(kind, 9), torch.rand(5, 9) < 0.3
    found = supervised_contrast(labelled(keys, rows), labelled(others, more), hidden, temperature)
    torch.testing.assert_close(found, by_hand(keys, rows, others, more, hidden, temperature))


def test_rows_all_in_one_place_cost_the_logarithm_of_their_number():
    rows = labelled(torch.ones(6, 3), one_hot(torch.tensor([0, 0, 0, 1, 1, 1])).float())
    found = supervised_contrast(rows, rows, torch.eye(6).bool(), temperature=0.5)
    torch.testing.assert_close(found, torch.full((6,), math.log(5)))


def test_one_twin_among_opposite_rows_costs_nothing_when_cold():
    rows = labelled(torch.tensor([[1.0], [1.0], [-1.0], [-1.0]]), torch.eye(2)[[0, 0, 1, 1]])
    found = supervised_contrast(rows, rows, torch.eye(4).bool(), temperature=0.01)
    torch.testing.assert_close(found, torch.zeros(4))


def test_a_row_that_nobody_agrees_with_costs_nothing_and_has_a_gradient():
    keys = torch.randn(3, 2, requires_grad=True)
    rows = labelled(keys, torch.eye(3))
    for hidden in (torch.eye(3).bool(), torch.ones(3, 3).bool()):
        loss = supervised_contrast(rows, rows, hidden, temperature=0.1)
        assert torch.equal(loss, torch.zeros(3))
        (gradient,) = torch.autograd.grad(loss.sum(), keys)
        assert torch.equal(gradient, torch.zeros(3, 2))


# ------------------------------------------------------------- over batch, memory and slots


def model_of(config, target=None):
    torch.manual_seed(0)
    target = target or Classes(3)
    return HMA(nn.Identity(), config=config, target=target, feature_dim=8).double()


def naive(model, features, y, ids):
    """What a model's rows are compared with, gathered row by row from its memories."""
    state, target = model.memory_state(), model.target
    rows = list(zip(features, target.check(y, len(y)), ids.tolist(), strict=True))
    rows += [
        (row, label, None)
        for row, label, number in zip(
            state.features, target.check(state.labels, len(state.labels)),
            state.ids.tolist(), strict=True,
        )
        if number not in ids.tolist()
    ]  # fmt: skip
    rows += list(zip(state.slots, target.prototypes()[state.slot_classes], [None] * 99))  # noqa: B905
    others = torch.stack([row for row, _, _ in rows])
    membership = target.membership(torch.stack([label for _, label, _ in rows])).double()
    hidden = [[number == own for _, _, number in rows] for own in ids.tolist()]
    batch = membership[: len(ids)]
    temperature = model.config.contrast_temperature
    return by_hand(features, batch, others, membership, hidden, temperature)


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, slots_per_class=0, queue_size=0)])
def test_rows_are_compared_with_mates_stored_rows_and_slots_but_never_with_themselves(config):
    model = model_of(config)
    features, y, ids = torch.randn(6, 8).double(), torch.arange(6) % 3, torch.arange(6)
    model.remember(None, y, features=features + 1, ids=ids + 3)  # ids 3, 4, 5 come again below
    with torch.no_grad():
        found = model.contrast(features, y, ids=ids)
        torch.testing.assert_close(found, naive(model, features, y, ids))


@pytest.mark.parametrize(
    ("target", "y"),
    [
        (Classes(1), torch.arange(6) % 2),
        (SoftClasses(3), torch.rand(6, 3).softmax(dim=1)),
        (YesNo(2), torch.tensor([[0.0, 1], [1, 1], [math.nan, 0], [1, 0], [0, 0], [1, math.nan]])),
    ],
)
def test_labels_of_any_kind_that_rows_can_share(target, y):
    model = model_of(CONFIG, target)
    features, ids = torch.randn(6, 8).double(), torch.arange(6)
    model.remember(None, y, features=features + 1, ids=ids + 6)
    with torch.no_grad():
        found = model.contrast(features, y, ids=ids)
        torch.testing.assert_close(found, naive(model, features, y, ids))


def test_without_ids_a_row_is_still_not_compared_with_itself():
    model = model_of(replace(CONFIG, slots_per_class=0, queue_size=0))
    features, y = torch.randn(4, 8).double(), torch.tensor([0, 0, 1, 1])
    known = model.contrast(features, y, ids=torch.arange(4))
    torch.testing.assert_close(model.contrast(features, y), known)
    unknown = torch.tensor([-1, -1, 7, -1])
    torch.testing.assert_close(model.contrast(features, y, ids=unknown), known)


def test_features_and_slots_learn_from_it_and_stored_rows_do_not():
    model = model_of(CONFIG)
    features, y = torch.randn(4, 8).double().requires_grad_(), torch.tensor([0, 0, 1, 2])
    model.remember(None, y, features=features, ids=torch.arange(4) + 9)
    model.contrast(features, y, ids=torch.arange(4)).sum().backward()
    assert (features.grad != 0).any(dim=1).all()
    assert (model.synthetic.slots.grad != 0).any(dim=1).all()


def test_the_training_loss_has_its_share_of_contrast_and_by_default_none():
    features, y, ids = torch.randn(4, 8).double(), torch.tensor([0, 0, 1, 2]), torch.arange(4)
    for weight in (0.0, 0.25):
        model = model_of(replace(CONFIG, contrastive=weight))
        output = model.output(features)
        expected = model.target.loss(output.logits, y)
        if weight:
            expected = expected + weight * model.contrast(features, y, ids=ids)
        assert torch.equal(model.losses(output, y, ids=ids), expected)


def test_numbers_have_no_contrast():
    message = "contrastive needs labels that rows can share, classes or yes/no, got numbers"
    with pytest.raises(ConfigError, match=message):
        model_of(replace(CONFIG, contrastive=0.1), Number())
    with pytest.raises(ConfigError, match=message):
        model_of(CONFIG, Number()).contrast(torch.zeros(2, 8).double(), torch.zeros(2))


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("contrastive", -0.1, "finite and at least 0, got -0.1"),
        ("contrastive", math.inf, "finite and at least 0, got inf"),
        ("contrast_temperature", 0, "finite and above 0, got 0"),
        ("contrast_temperature", "1", "a number, got '1'"),
    ],
)
def test_weight_and_temperature_are_checked(name, value, rule):
    with pytest.raises(ConfigError, match=f"{name} must be {rule}"):
        HMAConfig(**{name: value})
