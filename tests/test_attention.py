"""The read against its formula, written out with loops in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import reference
from hma.attention import MemoryRead


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("scale", ["head", "token"])
@pytest.mark.parametrize("top_k", [None, 2, 50])
def test_read_matches_the_formula(neighbours, scale, top_k):
    read = MemoryRead(dim=6, num_heads=2, dropout=0.0, scale=scale, top_k=top_k).double()
    tokens, memory = torch.randn(3, 6).double(), torch.randn(5, 6).double()
    found, _ = read(tokens, read.project(memory), neighbours=neighbours)
    own = tokens.expand(3, -1, -1) if neighbours else tokens[:, None]
    by_hand = reference.read(read, tokens, reference.beside(own, memory))
    torch.testing.assert_close(found, by_hand)


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(0, 4),
    rows=st.integers(0, 5),
    heads=st.sampled_from([1, 2, 3]),
    width=st.integers(1, 3),
    neighbours=st.booleans(),
)
def test_read_matches_the_formula_at_any_size(batch, rows, heads, width, neighbours):
    read = MemoryRead(dim=heads * width, num_heads=heads, dropout=0.0).double()
    tokens = torch.randn(batch, heads * width).double()
    memory = torch.randn(rows, heads * width).double()
    found, _ = read(tokens, read.project(memory), neighbours=neighbours)
    assert found.shape == tokens.shape
    own = tokens.expand(batch, -1, -1) if neighbours else tokens[:, None]
    by_hand = reference.read(read, tokens, reference.beside(own, memory))
    torch.testing.assert_close(found, by_hand)


def test_a_query_never_sees_another_query():
    read = MemoryRead(dim=6, num_heads=2, dropout=0.0).double()
    tokens, memory = torch.randn(3, 6).double(), read.project(torch.randn(5, 6).double())
    alone = torch.cat([read(token[None], memory, neighbours=False)[0] for token in tokens])
    torch.testing.assert_close(read(tokens, memory, neighbours=False)[0], alone)


def test_a_row_of_bias_minus_infinity_is_never_seen():
    read = MemoryRead(dim=6, num_heads=2, dropout=0.0).double()
    tokens, memory = torch.randn(3, 6).double(), torch.randn(5, 6).double()
    bias = torch.tensor([0.0, float("-inf"), 0.0, float("-inf"), 0.0]).double()
    some, _ = read(tokens, read.project(memory, bias), neighbours=False)
    every_other, _ = read(tokens, read.project(memory[::2]), neighbours=False)
    torch.testing.assert_close(some, every_other)


@pytest.mark.parametrize("neighbours", [False, True])
def test_weights_sum_to_one_over_everything_seen(neighbours):
    read = MemoryRead(dim=6, num_heads=2)
    _, weights = read(torch.randn(3, 6), read.project(torch.randn(5, 6)), neighbours=neighbours)
    torch.testing.assert_close(weights.own.sum(-1) + weights.memory.sum(-1), torch.ones(2, 3))


def test_top_k_keeps_the_largest_weights_and_does_not_renormalise():
    read, full = MemoryRead(dim=6, num_heads=2, top_k=2), MemoryRead(dim=6, num_heads=2)
    full.load_state_dict(read.state_dict())
    tokens, memory = torch.randn(3, 6), read.project(torch.randn(5, 6))
    kept = torch.cat(read(tokens, memory, neighbours=False)[1][:2], dim=-1)
    every = torch.cat(full(tokens, memory, neighbours=False)[1][:2], dim=-1)
    largest = every.sort(dim=-1, descending=True).values[..., :2]
    assert (kept > 0).sum(dim=-1).eq(2).all()
    torch.testing.assert_close(kept.sort(dim=-1, descending=True).values[..., :2], largest)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="num_heads must divide dim, got 4 and 6"):
        MemoryRead(dim=6, num_heads=4)
