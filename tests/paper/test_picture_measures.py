"""What records hold for pictures of slots and attention, against scikit-learn and plain loops."""

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from hma import HMAConfig, VoteConfig
from hma.backbones import mlp
from hma.data import InMemory, Task
from hma.errors import UserError
from hma.methods import with_memory
from hma.paper.picture_measures import (
    REPEATS,
    _explained,
    _same_minus_other,
    against_permuted,
    attention_map,
    enter_slots,
    silhouette,
    slot_map,
    unpacked,
)
from hma.paper.table import ATTENTION_MAP, SLOT_MAP
from hma.questions.explain import explain

CLASSES, WIDTH, SLOTS = 4, 6, 5


def task_of(rows=12):
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat(rows)
    x = torch.randn(len(labels), WIDTH, generator=draw) + 3 * torch.eye(CLASSES, WIDTH)[labels]
    split = InMemory(x, labels)
    names = tuple("abcd")
    return Task("toy", "table", names, (WIDTH,), split, split, {"test": split})


def trained(**changes):
    """Return a learner whose memories hold something, in eval mode."""
    sizes = {"label_dim": 8, "num_heads": 2, "queue_size": 20, "slots_per_class": SLOTS}
    config = HMAConfig(**sizes | changes)
    learner = with_memory(lambda task: mlp(WIDTH, hidden=(8,)), config)(task_of(), 0)
    rows = task_of().train.batch(torch.arange(20))
    learner.module.remember(rows.x, rows.y)
    learner.module.eval()
    return learner


@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1, 2, 2, 2], [3, 1, 1, 1, 3, 0, 5, 5]])
def test_the_silhouette_is_that_of_scikit_learn(labels):
    places = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = silhouette(torch.cdist(places, places), torch.tensor(labels))
    assert found == pytest.approx(silhouette_score(places.numpy(), labels))


def test_chance_is_the_number_with_permuted_classes():
    labels = torch.arange(2).repeat_interleave(8)
    values = torch.randn(16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def difference(classes):
        return float(values[classes == 1].mean() - values[classes == 0].mean())

    found = against_permuted(difference, labels)
    draw = torch.Generator().manual_seed(0)
    chance = [difference(labels[torch.randperm(16, generator=draw)]) for _ in range(REPEATS)]
    reached = sum(value >= difference(labels) for value in chance)
    assert found["p"] == pytest.approx((1 + reached) / (1 + REPEATS))
    assert found["chance"] == pytest.approx(np.mean(chance), abs=1e-6)
    assert found["low"] == pytest.approx(np.quantile(chance, 0.025), abs=1e-6)
    both = against_permuted(lambda classes: -difference(classes), labels, two_sided=True)
    assert both["p"] == against_permuted(difference, labels, two_sided=True)["p"]


def test_slots_that_were_put_by_class_lie_together_and_are_found_so():
    learner = trained()
    model = learner.module
    with torch.no_grad():
        model.synthetic.slots.mul_(0.1)
        model.synthetic.slots[:, :CLASSES] += 5 * torch.eye(CLASSES)[model.synthetic.classes]
    found = slot_map(learner, task_of(), classes=3)[SLOT_MAP]
    numbers = found["numbers"]
    classes = model.synthetic.classes.numpy()
    expected = silhouette_score(model.synthetic.slots.detach().double().numpy(), classes)
    assert numbers["silhouette"]["value"] == pytest.approx(expected, abs=1e-5)
    assert numbers["silhouette"]["p"] == 1 / (1 + REPEATS)
    assert numbers["silhouette on map"]["value"] > 0.5
    assert found["classes"] == ["a", "b", "c"]
    assert unpacked(found["slots"]["class"]) == [c for c in range(3) for _ in range(SLOTS)]
    assert len(unpacked(found["rows"]["x"])) == 3 * 12


def test_neighbours_and_their_classes_are_those_by_angle():
    learner = trained()
    model, task = learner.module, task_of()
    found = slot_map(learner, task, classes=2)[SLOT_MAP]
    places = torch.tensor([int(place) for place in unpacked(found["rows"]["place"])])
    assert task.train.labels[places].tolist() == [0] * 12 + [1] * 12
    rows = enter_slots(model, task.train, places).numpy()
    slots = model.synthetic.slots.detach().numpy()[: 2 * SLOTS]
    near = np.array(unpacked(found["slots"]["near"])).reshape(len(slots), 3)
    for slot, chosen in zip(slots, near, strict=True):
        angles = [row @ slot / np.linalg.norm(row) / np.linalg.norm(slot) for row in rows]
        assert chosen.tolist() == np.argsort(angles)[::-1][:3].tolist()
    every = enter_slots(model, task.train, torch.arange(len(task.train))).numpy()
    same = []
    for slot, own in zip(
        model.synthetic.slots.detach().numpy(), model.synthetic.classes, strict=True
    ):
        angles = [row @ slot / np.linalg.norm(row) for row in every]
        same.append(int(task.train.labels[int(np.argmax(angles))]) == int(own))
    assert found["numbers"]["nearest"]["value"] == pytest.approx(np.mean(same), abs=1e-6)


def test_real_rows_are_what_the_synthetic_read_is_given():
    learner = trained()
    model, seen = learner.module, []
    model.synthetic.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    places = torch.arange(7)
    model(task_of().train.batch(places).x)
    width = model.feature_dim
    assert torch.allclose(enter_slots(model, task_of().train, places), seen[0][:, :width])


def test_shares_are_those_of_the_synthetic_read():
    learner = trained(queue_size=0)
    found = attention_map(learner, task_of(), classes=3, samples=4)[ATTENTION_MAP]
    places = torch.tensor([int(place) for place in unpacked(found["places"])])
    told = explain(learner.module, task_of().train.batch(places).x)
    count = len(places) + CLASSES * SLOTS
    among = told.batch + torch.diag(told.itself)
    expected = torch.cat([among, told.slots[:, : 3 * SLOTS]], dim=1) * count
    drawn = torch.tensor([unpacked(line) for line in found["shares"]]) * found["unit"]
    assert (drawn - expected).abs().max() <= found["unit"] / 2 + 1e-6
    assert unpacked(found["sample classes"]) == [c for c in range(3) for _ in range(4)]
    own = told.slots.view(12, CLASSES, SLOTS).sum(dim=2) / told.slots.sum()
    same = own[torch.arange(12), torch.arange(3).repeat_interleave(4)].sum()
    assert found["numbers"]["same slots"]["value"] == pytest.approx(float(same), abs=1e-5)


def test_likeness_and_blocks_are_their_formulas():
    draw = torch.Generator().manual_seed(3)
    rows = torch.rand(6, 4, dtype=torch.float64, generator=draw)
    likeness = torch.rand(6, 6, dtype=torch.float64, generator=draw)
    classes = torch.tensor([0, 0, 2, 2, 2, 5])
    same, other = [], []
    for i in range(6):
        for j in range(6):
            if i != j:
                (same if classes[i] == classes[j] else other).append(float(likeness[i, j]))
    assert _same_minus_other(likeness, classes) == pytest.approx(np.mean(same) - np.mean(other))
    between = sum(
        float((rows[classes == classes[i]].mean(0) - rows.mean(0)).square().sum()) for i in range(6)
    )
    total = float((rows - rows.mean(0)).square().sum())
    assert _explained(rows, classes) == pytest.approx(between / total)


def test_a_memory_without_such_slots_is_refused():
    learner = with_memory(lambda task: mlp(WIDTH, hidden=(8,)), VoteConfig())(task_of(), 0)
    with pytest.raises(UserError, match="a slot map needs slots that are read by attention"):
        slot_map(learner, task_of())
    with pytest.raises(UserError, match="an attention map needs rows that see their batch"):
        attention_map(learner, task_of())


def test_looks_that_keep_one_weight_still_have_numbers():
    found = attention_map(trained(top_k=1), task_of(), classes=3, samples=4)[ATTENTION_MAP]
    assert all(np.isfinite(one["value"]) for one in found["numbers"].values())


def test_a_number_that_is_not_defined_is_never_beyond_chance():
    labels = torch.arange(2).repeat(4)
    for two_sided in (False, True):
        assert against_permuted(lambda _: float("nan"), labels, two_sided=two_sided)["p"] == 1
