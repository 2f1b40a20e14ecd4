"""The queue against the obvious Python implementation."""

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hma.memory.rows import MemoryQueue, MemoryRows
from hma.targets import Classes


def queue_of(size, feature_dim=1):
    return MemoryQueue(size, feature_dim, Classes(3))


def batch(start, size, ignore=None):
    stamps = torch.arange(start, start + size)
    return MemoryRows(stamps[:, None].float(), labels=stamps % 3, ids=stamps + 100, ignore=ignore)


def held(queue):
    rows = queue.rows()
    return list(
        zip(
            rows.features.flatten().long().tolist(),
            rows.labels.tolist(),
            rows.ids.tolist(),
            strict=True,
        )
    )


@given(size=st.integers(1, 6), sizes=st.lists(st.integers(0, 14), max_size=6))
def test_queue_keeps_what_a_deque_keeps(size, sizes):
    queue, oracle, stamp = (
        queue_of(size, 1),
        deque(maxlen=size),
        0,
    )
    for count in sizes:
        queue.write(batch(stamp, count))
        oracle.extend((s, s % 3, s + 100) for s in range(stamp, stamp + count))
        stamp += count
        assert held(queue) == list(oracle)
        assert int(queue.filled().sum()) == len(oracle)


@given(size=st.integers(1, 5), masks=st.lists(st.lists(st.booleans(), max_size=12), max_size=5))
def test_ignored_rows_are_as_if_never_given(size, masks):
    queue, oracle, stamp = (
        queue_of(size, 1),
        deque(maxlen=size),
        0,
    )
    for mask in masks:
        queue.write(batch(stamp, len(mask), ignore=torch.tensor(mask, dtype=torch.bool)))
        kept = (stamp + place for place, ignored in enumerate(mask) if not ignored)
        oracle.extend((s, s % 3, s + 100) for s in kept)
        stamp += len(mask)
        assert held(queue) == list(oracle)


@pytest.mark.parametrize("before", [0, 2, 4, 7])
def test_queue_survives_a_checkpoint_at_any_fill(before):
    queue, resumed = (
        queue_of(4, 1),
        queue_of(4, 1),
    )
    queue.write(batch(0, before))
    resumed.load_state_dict(queue.state_dict())
    for one in (queue, resumed):
        one.write(batch(50, 3))
    assert held(resumed) == held(queue)


def test_a_cleared_queue_holds_nothing_and_can_be_written_again():
    queue = queue_of(3, 1)
    queue.write(batch(0, 5))
    queue.clear()
    assert held(queue) == []
    queue.write(batch(7, 1))
    assert held(queue) == [(7, 1, 107)]


def test_gradients_do_not_flow_into_the_queue():
    queue = queue_of(3, 2)
    features = torch.randn(2, 2, requires_grad=True)
    queue.write(MemoryRows(features * 2, torch.tensor([0, 1]), torch.tensor([0, 1])))
    assert not queue.features.requires_grad


def test_wrong_width_names_the_argument():
    with pytest.raises(ValueError, match=r"features must have shape \(\*, 2\), got \(1, 3\)"):
        queue_of(4, 2).write(MemoryRows(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([0])))
