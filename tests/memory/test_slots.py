"""Where slots start: values by hand, and what happens where there is nothing to start from."""

from dataclasses import replace

import pytest
import torch
from sklearn.cluster import KMeans
from torch import nn

import hma
from hma import HMA, ConfigError, HMAConfig, VoteConfig, VotingMemory
from hma.targets import Classes, Number, SoftClasses, Target, YesNo

CONFIG = HMAConfig(label_dim=4, queue_size=4, slots_per_class=2, num_heads=2)
Y = torch.arange(30) % 3
FROM_DATA = ("samples", "class_means", "kmeans", "distilled")


def model_of(**arguments):
    return HMA(nn.Identity(), config=CONFIG, feature_dim=4, **arguments or {"num_classes": 3})


def clusters():
    """Features whose classes lie far apart, with noise that is small beside that."""
    centres = torch.tensor([[9.0, 0, 0, 0], [0, 9.0, 0, 0], [0, 0, 9.0, 0]])
    return centres[Y] + 0.1 * torch.randn(30, 4)


def test_slots_start_from_small_noise_by_default():
    model = HMA(nn.Identity(), 40, HMAConfig(slots_per_class=20), feature_dim=64)
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
    with pytest.raises(ValueError, match="need at least one row; pass features and y"):
        model.set_slots("samples")
    with pytest.raises(ValueError, match="need at least one row"):
        model.set_slots("samples", torch.full((3, 4), torch.nan), torch.arange(3))


@pytest.mark.parametrize("start", FROM_DATA)
def test_slots_of_a_class_without_rows_stay_and_this_is_said(start):
    model, features = model_of(), torch.randn(20, 4)
    before = model.memory_state().slots
    with pytest.warns(UserWarning, match="no row for the slots of class 2, which stay"):
        model.set_slots(start, features, torch.arange(20) % 2)
    after = model.memory_state().slots
    assert torch.equal(after[4:], before[4:])
    assert (after[:4] != before[:4]).all()


@pytest.mark.parametrize("memory", [HMA, VotingMemory])
@pytest.mark.parametrize("start", FROM_DATA)
@pytest.mark.parametrize(
    ("target", "y"),
    [
        (Classes(1), torch.arange(40) % 2),
        (SoftClasses(3), torch.eye(3)[torch.arange(40) % 3] * 0.7 + 0.1),
        (YesNo(2), torch.stack([torch.arange(40) % 2, torch.arange(40) // 2 % 2], dim=1).float()),
        (Number(), torch.linspace(-2, 2, 40)),
    ],
    ids=lambda value: value.kind if isinstance(value, Target) else "",
)
def test_slots_of_any_target_start_among_rows_of_their_own_label(target, y, start, memory):
    membership = target.membership(target.check(y, 40)).float()
    features = torch.cat([100 * membership, torch.zeros(40, 9)], dim=1)[:, :9]
    features[:, 8] = torch.randn(40)
    config = replace(CONFIG, label_dim=3) if memory is HMA else VoteConfig(slots_per_class=2)
    model = memory(nn.Identity(), config=config, target=target, feature_dim=9)
    model.set_slots(start, features, y)
    state = model.memory_state()
    assert (features[:, :8].std(dim=0)[: len(target.prototypes())] > 10).all(), "rows lie apart"
    for slot, label in zip(state.slots, state.slot_classes.tolist(), strict=True):
        own = features[membership[:, label] == membership.amax(dim=1)]
        assert abs(float(slot[label] - own[:, label].mean())) < 10


def test_the_same_random_numbers_give_the_same_slots():
    model, features = model_of(), clusters()
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        model.set_slots("distilled", features, Y)
        found.append(model.memory_state().slots)
    assert torch.equal(*found)


# ------------------------------------------------------------- slots that wait for data


def test_slots_that_wait_for_data_are_noise_and_the_model_says_so():
    torch.manual_seed(0)
    model = HMA(nn.Identity(), 3, replace(CONFIG, slot_init="kmeans"), feature_dim=4)
    torch.manual_seed(0)
    noise = HMA(nn.Identity(), 3, CONFIG, feature_dim=4)
    assert torch.equal(model.memory_state().slots, noise.memory_state().slots)
    assert "slots are noise until 'kmeans' is given rows" in repr(model)
    assert "until" not in repr(noise)
    with pytest.warns(UserWarning, match=r"slot_init='kmeans' needs rows.*model.start_slots"):
        model.remember(torch.zeros(1, 4), torch.tensor([0]))
    model.remember(torch.zeros(1, 4), torch.tensor([0]))  # said once
    model.set_slots("kmeans", clusters(), Y)
    assert "until" not in repr(model)


def test_batches_start_the_slots_once_as_eval_mode_encodes_them():
    backbone = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    model = HMA(backbone, 3, replace(CONFIG, slot_init="class_means"), feature_dim=4)
    x, seen = clusters(), []

    def batches():
        for places in torch.split(torch.arange(30), 8):
            seen.append(len(places))
            yield x[places], Y[places]

    model.start_slots(batches())
    assert seen == [8, 8, 8, 6]
    assert model.training
    assert backbone.training
    with torch.no_grad():
        means = torch.stack([backbone[0](x[label == Y]).mean(dim=0) for label in range(3)])
    state = model.memory_state()
    torch.testing.assert_close(state.slots, means[state.slot_classes], atol=0.5, rtol=0)
    model.start_slots(batches())
    assert torch.equal(model.memory_state().slots, state.slots)
    with pytest.raises(ValueError, match="at least one row"):
        HMA(backbone, 3, model.config, feature_dim=4).start_slots([])


def test_a_saved_model_remembers_that_its_slots_have_started(tmp_path):
    config = replace(CONFIG, slot_init="class_means")
    for started in (False, True):
        model = HMA(nn.Linear(4, 4), 3, config, feature_dim=4)
        if started:
            model.set_slots("class_means", clusters(), Y)
        hma.save(model, tmp_path / str(started))
        loaded = hma.load(tmp_path / str(started), nn.Linear(4, 4))
        assert loaded.synthetic.waits is not started
        assert torch.equal(loaded.memory_state().slots, model.memory_state().slots)


@pytest.mark.parametrize(
    ("memory", "config"),
    [
        (HMA, CONFIG),
        (VotingMemory, VoteConfig(slots_per_class=2)),
        (VotingMemory, VoteConfig(slot_init="kmeans")),  # without slots
    ],
)
def test_slots_that_need_no_data_add_nothing_to_the_state(memory, config):
    model = memory(nn.Identity(), 3, config, feature_dim=4)
    assert not [name for name in model.state_dict() if "waiting" in name]


# ------------------------------------------------------------------ which rows are drawn


def test_rows_to_start_from_are_as_many_of_each_class_and_a_rare_one_whole(monkeypatch):
    monkeypatch.setattr(hma.memory.slots, "MOST_ROWS", 30)
    labels = torch.zeros(1000, dtype=torch.long)
    labels[::10], labels[::200] = 1, 2
    places = hma.memory.slots.draw_rows(labels, Classes(3), slots_per_class=2)
    assert labels[places].bincount().tolist() == [10, 10, 5]
    assert len(set(places.tolist())) == 25
    assert len(hma.memory.slots.draw_rows(labels, Classes(3), slots_per_class=12)) == 12 + 12 + 5


def test_without_slots_there_is_nothing_to_start():
    model = HMA(nn.Identity(), 3, HMAConfig.ablation("rma", num_heads=2), feature_dim=4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.set_slots("zeros")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
