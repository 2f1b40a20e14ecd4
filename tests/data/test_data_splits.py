"""Splits by class and seed, and what a task says of them."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hma.data import PreparationOptions, open_source, preparation_from_json, prepare
from hma.data.splitting import quotas, stratified
from hma.data.task_from_source import prepare_splits
from hma.errors import UserError

class_sizes = st.lists(st.integers(2, 60), min_size=2, max_size=6)
shares = st.sampled_from([(0.15, 0.2), (0.1, 0.1), (0.4, 0.4), (0.25, 0.0), (0.05, 0.9)])


def labels_of(sizes):
    return torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])


@given(class_sizes, shares, st.integers(0, 2**31))
def test_every_row_is_in_one_split_and_every_class_in_train(sizes, share, seed):
    labels = labels_of(sizes)
    validation, test = share
    try:
        parts = stratified(labels, seed, validation=validation, test=test)
    except UserError as error:
        assert "too few" in str(error)  # noqa: PT017
        wanted = [int(len(labels) * each + 0.5) for each in share if each]
        assert min(wanted) == 0 or sum(wanted) > len(labels) - len(sizes)
        return
    rows = [row for part in parts.values() for row in part]
    assert sorted(rows) == list(range(len(labels)))
    assert set(labels[parts["train"]].tolist()) == set(range(len(sizes)))
    assert list(parts) == ["train", "validation", "test"][: 3 if test else 2]


@given(st.lists(st.integers(20, 200), min_size=2, max_size=6), shares)
def test_every_class_gives_its_share_to_within_one_row(sizes, share):
    labels = labels_of(sizes)
    parts = stratified(labels, 0, validation=share[0], test=share[1])
    for name, wanted in zip(("validation", "test"), share, strict=True):
        counts = Counter(labels[parts.get(name, [])].tolist())
        for label, size in enumerate(sizes):
            assert abs(counts[label] - wanted * size) < 1 + 1e-9
        assert abs(sum(counts.values()) - wanted * len(labels)) <= 0.5 + 1e-9


@given(class_sizes, st.floats(0.0, 0.9))
def test_quotas_never_exceed_the_room(sizes, share):
    counts = torch.tensor(sizes)
    found = quotas(counts, share, room=counts - 1)
    assert bool((found <= counts - 1).all())
    assert bool((found >= 0).all())


def test_the_seed_decides_and_nothing_else():
    labels = labels_of([30, 50])
    first = stratified(labels, 7, validation=0.2, test=0.2)
    torch.manual_seed(99)
    assert stratified(labels, 7, validation=0.2, test=0.2) == first
    assert stratified(labels, 8, validation=0.2, test=0.2) != first


def test_training_rows_are_mixed_and_all_others_as_in_the_file():
    labels = labels_of([50, 50])
    parts = stratified(labels, 0, validation=0.2, test=0.2)
    train = parts.pop("train")
    assert int((labels[train].diff() != 0).sum()) > len(train) // 4
    for rows in parts.values():
        assert rows == sorted(rows)


@pytest.mark.parametrize(("validation", "test"), [(0.0, 0.2), (0.5, 0.5), (-0.1, 0.2), (0.2, -0.1)])
def test_impossible_shares_are_refused(validation, test):
    with pytest.raises(UserError, match=r"validation must be above 0.*got"):
        stratified(labels_of([9, 9]), 0, validation=validation, test=test)


def test_too_few_rows_are_refused():
    with pytest.raises(UserError, match=r"4 rows are too few: none is left for validation"):
        stratified(labels_of([2, 2]), 0, validation=0.01, test=0.2)


@pytest.fixture
def source(tmp_path):
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=generator.normal(size=(60, 3)), y=np.arange(60) % 3)
    return open_source(tmp_path / "a.npz")


def test_sample_ids_lead_back_to_rows_of_the_source(source):
    prepared = prepare(source, seed=4)
    raw = prepared.preparation.split(source)
    splits = {"train": prepared.task.train, "validation": prepared.task.validation}
    for name, split in (splits | dict(prepared.task.tests)).items():
        batch = split.batch(torch.arange(len(split)))
        rows = [prepared.places[name][sample] for sample in batch.ids.tolist()]
        torch.testing.assert_close(batch.x, raw.x[rows], rtol=0, atol=0)
        assert batch.y.tolist() == [row % 3 for row in rows]


def test_facts_say_how_the_splits_came_about(source):
    task = prepare(source, seed=4).task
    facts = json.loads(json.dumps(task.facts))
    assert facts["split"] == (
        "stratified by class, by seed: 65% train, 15% validation, 20% test; every class in train"
    )
    assert facts["seed"] == 4
    assert facts["rows"] == {"train": 39, "validation": 9, "test": 12}
    assert facts["fingerprint"] == source.fingerprint()
    assert facts["preparation"]["numbers"] == ["x0", "x1", "x2"]


def test_without_a_test_share_there_is_no_test(source):
    prepared = prepare(source, seed=0, test=0.0)
    assert dict(prepared.task.tests) == {}
    assert sorted(prepared.places) == ["train", "validation"]


def test_splits_can_be_given(source):
    places = {"train": range(30), "validation": range(30, 40), "late": range(40, 60)}
    prepared = prepare_splits(
        source, places, classes=("0", "1", "2"), seed=0, facts={"split": "by time"}
    )
    assert list(prepared.task.tests) == ["late"]
    assert prepared.places["late"] == list(range(40, 60))
    assert prepared.task.facts["split"] == "by time"


def test_options_for_another_kind_are_refused(source):
    with pytest.raises(UserError, match=r"image_size is for data of kind 'image'"):
        prepare(source, seed=0, options=PreparationOptions(image_size=8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99, this version of hma reads 1"),
        ({"kind": "sound"}, "unknown kind, 'sound'"),
        ({"columns": [{"kind": "number", "mean": 1}]}, "damaged"),
        ({"columns": [{"kind": "colour", "name": "a"}]}, "unknown kind, 'colour'"),
        ({"classes": None}, "damaged"),
    ],
)
def test_a_preparation_of_another_version_is_refused(source, change, message):
    values = prepare(source, seed=0).preparation.to_json()
    with pytest.raises(UserError, match=message):
        preparation_from_json(values | change)


def test_a_preparation_with_a_part_missing_is_refused(source):
    values = prepare(source, seed=0).preparation.to_json()
    for name in set(values) - {
        "format",
        "labels",
        "label_columns",
        "dropped",
    }:  # not always written
        with pytest.raises(UserError, match=r"damaged|unknown kind"):
            preparation_from_json({key: value for key, value in values.items() if key != name})
