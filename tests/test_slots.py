"""Where slots start: values by hand, and what happens where there is nothing to start from."""

import pytest
import torch
from sklearn.cluster import KMeans
from torch import nn

from hma import HMA, ConfigError, HMAConfig
from hma.targets import Number, YesNo

CONFIG = HMAConfig.paper(label_dim=4, queue_size=4, slots_per_class=2, num_heads=2)
Y = torch.arange(30) % 3


def model_of(**arguments):
    return HMA(nn.Identity(), config=CONFIG, feature_dim=4, **arguments or {"num_classes": 3})


def clusters():
    """Features whose classes lie far apart, with noise that is small beside that."""
    centres = torch.tensor([[9.0, 0, 0, 0], [0, 9.0, 0, 0], [0, 0, 9.0, 0]])
    return centres[Y] + 0.1 * torch.randn(30, 4)


def test_slots_start_from_small_noise_by_default():
    model = HMA(nn.Identity(), 40, HMAConfig.paper(slots_per_class=20), feature_dim=64)
    slots = model.memory_state().slots
    assert abs(float(slots.mean())) < 1e-3
    assert 0.019 < float(slots.std()) < 0.021


def test_class_means_start_each_slot_at_its_class_and_apart_from_its_twin():
    model, features = model_of(), clusters()
    model.set_slots("class_means", features, Y)
    state = model.memory_state()
    for slot, label in zip(state.slots, state.slot_classes.tolist(), strict=True):
        assert (slot - features[label == Y].mean(dim=0)).norm() < 1.0
    assert (state.slots[0] - state.slots[1]).norm() > 0


def test_samples_start_each_slot_at_another_row_of_its_class():
    model, features = model_of(), clusters()
    model.set_slots("samples", features, Y)
    state = model.memory_state()
    nearest = torch.cdist(state.slots, features).argmin(dim=1)
    assert Y[nearest].tolist() == state.slot_classes.tolist()
    assert len(set(nearest.tolist())) == len(nearest)


def test_kmeans_starts_slots_at_the_centres_that_scikit_learn_finds():
    model = model_of()
    features = torch.randn(30, 4) * 0.01 + (torch.arange(30) // 3 % 2)[:, None] * 5.0
    model.set_slots("kmeans", features, Y)
    state = model.memory_state()
    for label in range(3):
        centres = KMeans(2, n_init=3, random_state=0).fit(features[label == Y].numpy())
        expected = torch.tensor(centres.cluster_centers_).float()
        found = state.slots[state.slot_classes == label]
        assert torch.cdist(found, expected).min(dim=1).values.max() < 0.5
        assert len(torch.cdist(found, expected).argmin(dim=1).unique()) == 2


def test_a_function_of_ones_own_starts_slots():
    model = model_of()
    model.set_slots(lambda slots, classes, examples: slots * 0 + classes[:, None])
    assert model.memory_state().slots[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_every_prototype_of_a_target_has_slots():
    classes = model_of(target=YesNo(2)).memory_state().slot_classes
    assert classes.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(model_of(target=Number()).memory_state().slots) == 2 * 5


def test_what_cannot_start_slots_is_named():
    model = model_of()
    with pytest.raises(ConfigError, match="did you mean 'kmeans'"):
        model.set_slots("kmean")
    with pytest.raises(ValueError, match="features and y must be given together"):
        model.set_slots("samples", torch.zeros(2, 4))
    with pytest.raises(ValueError, match="need features and y"):
        model.set_slots("samples")
    with pytest.raises(ValueError, match="no row of class 2"):
        model.set_slots("class_means", torch.zeros(2, 4), torch.tensor([0, 1]))


def test_without_slots_there_is_nothing_to_start():
    model = HMA(nn.Identity(), 3, HMAConfig.ablation("rma", num_heads=2), feature_dim=4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.set_slots("zeros")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
