"""Reading only the best rows: against the full read, and against scores sorted one by one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.reference import predict
from hma import HMA, HMAConfig, explain
from hma.attention.block import MemoryRead
from hma.memory.projected import Projected
from hma.vote.search import BestRows

CONFIG = HMAConfig(label_dim=4, queue_size=9, slots_per_class=2, num_heads=2, dropout=0.0)


def filled(rows=7):
    model = HMA(nn.Linear(5, 8), 3, CONFIG, feature_dim=8).double()
    model.remember(torch.randn(rows, 5).double(), torch.arange(rows) % 3, ids=torch.arange(rows))
    return model.eval()


@settings(deadline=None, max_examples=40, derandomize=True)
@given(rows=st.integers(1, 12), k=st.integers(1, 14), block=st.integers(1, 13))
def test_the_rows_are_those_with_the_largest_scores_whatever_the_block(rows, k, block):
    queries, keys = torch.randn(2, 3, 4).double(), torch.randn(2, rows, 4).double()
    bias = torch.randn(rows).double()
    places = BestRows(k, block)(queries, Projected(keys, keys, bias))
    if k >= rows:
        assert places is None  # all of them
        return
    assert places.shape == (2, 3, min(k, rows))
    for head in range(2):
        for query in range(3):
            scores = [float(queries[head, query] @ keys[head, r] + bias[r]) for r in range(rows)]
            best = sorted(range(rows), key=lambda r: -scores[r])[:k]
            assert places[head, query].tolist() == best


@pytest.mark.parametrize("k", [9, 7, 100])
def test_reading_as_many_rows_as_there_are_is_the_full_read(k):
    model = filled()
    x = torch.randn(4, 5).double()
    expected = predict(model, model.backbone(x))
    model.real.nearest = BestRows(k, block=2)
    torch.testing.assert_close(model(x), expected)


def test_the_softmax_runs_over_the_chosen_rows_and_the_query_itself():
    read = MemoryRead(dim=6, num_heads=2, dropout=0.0).double()
    tokens, rows = torch.randn(3, 6).double(), torch.randn(8, 6).double()
    memory = read.project(rows)
    _, weights = read(tokens, memory, neighbours=False, nearest=BestRows(3))
    _, full = read(tokens, memory, neighbours=False)
    for head in range(2):
        for query in range(3):
            kept = full.memory[head, query].topk(3).indices
            seen = [full.own[head, query, 0], *full.memory[head, query, kept]]
            expected = torch.stack(seen) / sum(seen)
            assert weights.places[head, query].tolist() == kept.tolist()
            found = torch.cat([weights.own[head, query], weights.memory[head, query]])
            torch.testing.assert_close(found, expected)


def test_gradients_reach_the_rows_that_were_read_and_no_others():
    read = MemoryRead(dim=4, num_heads=1, dropout=0.0).double()
    rows = torch.randn(6, 4).double().requires_grad_()
    tokens, weights = read(
        torch.randn(1, 4).double(), read.project(rows), neighbours=False, nearest=BestRows(2)
    )
    tokens.sum().backward()
    touched = rows.grad.abs().sum(dim=1).nonzero()[:, 0].tolist()
    assert touched == sorted(weights.places.flatten().tolist())


def test_an_explanation_gives_the_rows_that_were_not_read_no_share():
    model = filled()
    model.real.nearest = BestRows(2)
    found = explain(model, torch.randn(4, 5).double())
    shares = found.itself + sum(p.sum(1) for p in (found.queue, found.batch, found.slots))
    torch.testing.assert_close(shares, torch.ones(4).to(shares))
    model.context = "alone"
    alone = explain(model, torch.randn(4, 5).double())
    assert ((alone.queue > 0).sum(dim=1) <= 2 * CONFIG.num_heads).all()
    assert (alone.queue > 0).any(dim=1).all()


@pytest.mark.parametrize(("field", "value"), [("k", 0), ("k", 2.5), ("block", -1)])
def test_sizes_that_cannot_be_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field} must be a whole number of at least 1"):
        BestRows(**{"k": 1, "block": 1, field: value})
