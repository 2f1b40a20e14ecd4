"""Rows kept by sample, against a dictionary."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hma import HMA, HMAConfig, VotingMemory
from hma.memory.rows import KeyedRows, MemoryRows
from hma.options.config import ConfigError
from hma.targets import Classes, Number

BATCHES = st.lists(st.lists(st.integers(0, 9), max_size=7), max_size=7)


def batch(ids, stamp, ignore=None):
    values = torch.arange(len(ids)) + 100.0 * stamp
    ids = torch.tensor(ids, dtype=torch.long)
    return MemoryRows(values[:, None], labels=ids % 3, ids=ids, ignore=ignore)


def held(store):
    rows = store.rows()
    return dict(zip(rows.ids.tolist(), rows.features.flatten().tolist(), strict=True))


@given(BATCHES)
def test_each_sample_has_one_row_its_last(batches):
    store, oracle = KeyedRows(None, 1, Classes(3)), {}
    for stamp, ids in enumerate(batches):
        store.write(batch(ids, stamp))
        oracle |= {one: 100.0 * stamp + place for place, one in enumerate(ids)}
        assert held(store) == oracle
        assert store.rows().labels.tolist() == [one % 3 for one in store.rows().ids.tolist()]
        wanted = torch.arange(-1, 12)
        found = store.find(wanted)
        assert (found >= 0).tolist() == [one in oracle for one in wanted.tolist()]
        assert torch.equal(store.ids[found[found >= 0]], wanted[found >= 0])


@given(BATCHES, st.lists(st.integers(0, 9), max_size=4))
def test_forgotten_rows_are_as_if_never_written(batches, forgotten):
    store, without = (KeyedRows(None, 1, Classes(3)) for _ in range(2))
    for stamp, ids in enumerate(batches):
        store.write(batch(ids, stamp))
        ignore = torch.tensor([one in forgotten for one in ids], dtype=torch.bool)
        without.write(batch(ids, stamp, ignore))
    there = set(held(store)) & set(forgotten)
    assert store.forget(torch.tensor(forgotten, dtype=torch.long)) == len(there)
    assert held(store) == held(without)


@given(st.integers(1, 6), BATCHES)
def test_a_bounded_store_never_holds_more_and_keeps_the_newest_samples(size, batches):
    store, order = KeyedRows(size, 1, Classes(3)), []
    for stamp, ids in enumerate(batches):
        store.write(batch(ids, stamp))
        here = set(order[-size:])
        order += [one for one in dict.fromkeys(ids[::-1]).__reversed__() if one not in here]
        assert len(store.rows().ids) <= size
        assert store.size == size
    if order:
        assert order[-1] in held(store)


def test_rows_without_an_id_are_kept_as_they_come():
    store = KeyedRows(None, 1, Classes(3))
    for stamp in range(3):
        store.write(batch([-1, -1], stamp))
    assert store.rows().features.flatten().tolist() == [0.0, 1.0, 100.0, 101.0, 200.0, 201.0]


def test_a_store_of_any_length_is_loaded_into_an_empty_one():
    store, empty = (KeyedRows(None, 1, Number()) for _ in range(2))
    features = torch.randn(100, 1)
    store.write(MemoryRows(features, features[:, 0], torch.arange(100)))
    empty.load_state_dict(store.state_dict())
    assert torch.equal(empty.rows().features, features)
    empty.write(MemoryRows(features[:1] + 9, features[:1, 0], torch.tensor([42])))
    assert float(empty.rows().features[42]) == float(features[0] + 9)
    assert len(empty.rows().ids) == 100


def test_forget_needs_rows_by_sample():
    model = HMA(torch.nn.Identity(), 3, HMAConfig(queue_size=4), feature_dim=4)
    with pytest.raises(ConfigError, match=r"forget needs .* one for each sample, got HMA"):
        model.forget(torch.tensor([1]))


def test_a_model_that_forgot_answers_to_the_bit_as_one_that_never_knew():
    encoder = torch.nn.Linear(4, 16).requires_grad_(False)
    model = VotingMemory(encoder, num_classes=3, feature_dim=16).eval()
    x, y = torch.randn(203, 4), torch.randint(3, (203,))
    ids = torch.arange(203)
    model.learn_memory([(x, y, ids)], [(x[:50], y[:50])])
    never, queries, stay = copy.deepcopy(model), torch.randn(37, 4), ids % 5 != 2
    never.reset_memory()
    never.remember(x[stay], y[stay], features=model.backbone(x)[stay], ids=ids[stay])
    never.real.queue.trim()
    assert model.forget(ids[~stay]) == int((~stay).sum())
    with torch.no_grad():
        assert torch.equal(model(queries), never(queries))
    assert torch.equal(model.memory_state().ids, ids[stay])
    assert model.real.queue.size == never.real.queue.size == int(stay.sum())
