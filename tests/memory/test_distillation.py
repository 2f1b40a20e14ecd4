"""Distilled slots against the definition: mean embeddings of random maps, class by class."""

import torch
from torch import nn

from hma import VoteConfig, VotingMemory
from hma.memory.slots import match_distributions, random_map

CLASSES, EACH, WIDTH, SLOTS = 3, 60, 8, 4
Y = torch.arange(CLASSES).repeat_interleave(EACH)
GROUPS = torch.arange(CLASSES).repeat_interleave(SLOTS)


def rows():
    """Classes of two clusters each, so that a class's mean is like none of its rows."""
    middles = 3 * torch.randn(CLASSES, 2, WIDTH)
    return middles[Y, torch.arange(len(Y)) % 2] + torch.randn(len(Y), WIDTH)


def distance(slots, features, layer):
    """The squared distance of mean embeddings, by loops in float64, mean over classes."""
    weight, bias = (part.double() for part in layer)
    centre, spread = features.double().mean(dim=0), features.double().std(dim=0, correction=0)

    def embedded(row):
        active = (((row.double() - centre) / spread) @ weight + bias).clamp(min=0)
        return torch.cat([active, active**2])

    total = 0.0
    for label in range(CLASSES):
        own = torch.stack([embedded(row) for row in features[label == Y]]).mean(dim=0)
        few = torch.stack([embedded(row) for row in slots[label == GROUPS]]).mean(dim=0)
        total += float(((own - few) ** 2).sum()) / CLASSES
    return total


def test_a_random_map_gives_activations_and_their_squares():
    layer, rows = random_map(WIDTH, 5), torch.randn(4, WIDTH)
    active = [
        [max(0.0, float(row @ w + b)) for w, b in zip(layer.weight.T, layer.bias, strict=True)]
        for row in rows
    ]
    expected = torch.tensor([one + [value**2 for value in one] for one in active])
    torch.testing.assert_close(layer.moments(rows), expected)


def drawn(features):
    return torch.cat([features[label == Y][torch.randperm(EACH)[:SLOTS]] for label in range(3)])


def test_distilled_rows_stand_for_their_class_in_maps_that_they_were_not_fitted_to():
    torch.manual_seed(0)
    features = rows()
    samples = drawn(features)
    means = torch.stack([features[label == Y].mean(dim=0) for label in range(3)])[GROUPS]
    slots = match_distributions(samples, GROUPS, features, nn.functional.one_hot(Y).bool())
    fresh = [random_map(WIDTH, 64) for _ in range(3)]
    found, of_samples, of_means = (
        sum(distance(rows, features, layer) for layer in fresh) for rows in (slots, samples, means)
    )
    assert found < of_samples / 5
    assert found < of_means / 5
    best_of_many = min(distance(drawn(features), features, fresh[0]) for _ in range(20))
    assert distance(slots, features, fresh[0]) < best_of_many


def test_a_row_that_belongs_to_two_groups_counts_in_both():
    torch.manual_seed(0)
    features, both = torch.randn(40, 3), torch.ones(40, 2, dtype=torch.bool)
    groups = torch.tensor([0, 0, 1, 1])
    slots = match_distributions(features[[0, 1, 0, 1]], groups, features, both)
    torch.testing.assert_close(slots[:2], slots[2:])


def test_a_constant_feature_and_a_class_of_one_row_stay_as_they_are():
    features = torch.randn(9, 3)
    features[:, 0] = 5.0
    belongs = torch.zeros(9, 2, dtype=torch.bool)
    belongs[0, 0], belongs[1:, 1] = True, True
    groups = torch.tensor([0, 1, 1])
    slots = match_distributions(features[:3], groups, features, belongs)
    torch.testing.assert_close(slots[0], features[0], atol=1e-3, rtol=0)
    assert slots.isfinite().all()


def test_features_of_any_scale_are_distilled_alike():
    torch.manual_seed(0)
    features = rows()
    found = []
    for scale in (1.0, 1e-3, 1e3):
        torch.manual_seed(1)
        model = VotingMemory(nn.Identity(), 3, VoteConfig(slots_per_class=SLOTS), feature_dim=WIDTH)
        torch.manual_seed(1)
        model.set_slots("distilled", scale * features, Y)
        found.append(model.memory_state().slots / scale)
    torch.testing.assert_close(found[1], found[0], atol=0.05, rtol=0)
    torch.testing.assert_close(found[2], found[0], atol=0.05, rtol=0)
