"""The read against its formula, written out with loops in float64."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import reference
from hma.attention.block import MemoryRead
from hma.attention.linear import LinearRead, orthogonal_directions


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


# ---------------------------------------------------------------- through random features


def linear_and_exact(features, dim=16, heads=2):
    """Return both reads with the same weights; their keys and queries are of usual length."""
    torch.manual_seed(0)
    exact = MemoryRead(dim, heads, dropout=0.0).double()
    linear = LinearRead(dim, heads, features, dropout=0.0).double()
    linear.load_state_dict(exact.state_dict() | {"directions": linear.directions})
    return linear.eval(), exact.eval()


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(0, 4),
    rows=st.integers(0, 5),
    heads=st.sampled_from([1, 2, 3]),
    width=st.integers(1, 3),
    features=st.integers(1, 7),
    neighbours=st.booleans(),
)
def test_a_linear_read_matches_its_formula_at_any_size(
    batch, rows, heads, width, features, neighbours
):
    read = LinearRead(heads * width, heads, features, dropout=0.0).double()
    tokens = torch.randn(batch, heads * width).double()
    memory = torch.randn(rows, heads * width).double()
    found, weights = read(tokens, read.project(memory) if rows else None, neighbours=neighbours)
    own = tokens.expand(batch, -1, -1) if neighbours else tokens[:, None]
    by_hand = reference.read(read, tokens, reference.beside(own, memory))
    torch.testing.assert_close(found, by_hand)
    total = weights.own.sum(-1) + (weights.memory.sum(-1) if rows else 0)
    torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("neighbours", [False, True])
@torch.no_grad()
def test_a_linear_read_comes_nearer_to_the_exact_one_the_more_features_it_has(neighbours):
    torch.manual_seed(1)
    tokens, memory = torch.randn(40, 16).double(), torch.randn(100, 16).double()
    errors = []
    for features in (16, 64, 256, 1024, 4096):
        linear, exact = linear_and_exact(features)
        found, shares = linear(tokens, linear.project(memory), neighbours=neighbours)
        wanted, weights = exact(tokens, exact.project(memory), neighbours=neighbours)
        apart = (shares.memory - weights.memory).abs().sum(-1)  # (H, B): at most 2
        errors.append(float(apart.mean()))
        moved = (wanted - tokens).norm(dim=1).mean()
        assert (found - wanted).norm(dim=1).mean() < 4 * features**-0.5 * moved
    assert all(after < before for before, after in pairwise(errors))
    assert errors[-1] < errors[0] / 8  # 256 times the features: 16 times as near
    assert errors[-1] < 0.05


@torch.no_grad()
def test_the_weights_of_a_linear_read_are_those_that_mix_its_values():
    linear, _ = linear_and_exact(features=8)
    tokens, rows = torch.randn(3, 16).double(), torch.randn(5, 16).double()
    memory = linear.project(rows)
    found, weights = linear(tokens, memory, neighbours=True)
    own = linear.project(tokens)
    mixed = weights.own @ own.values + weights.memory @ memory.values  # (H, B, D/H)
    hidden = tokens + mixed.transpose(0, 1).flatten(1)
    torch.testing.assert_close(found, hidden + linear.feed_forward(linear.norm_hidden(hidden)))
    unasked, none = linear(tokens, memory, neighbours=True, weights=False)
    assert none is None
    assert torch.equal(unasked, found)


@torch.no_grad()
def test_a_linear_read_never_sees_hidden_rows_and_survives_a_memory_of_nothing_else():
    linear, _ = linear_and_exact(features=8)
    tokens, memory = torch.randn(3, 16).double(), torch.randn(5, 16).double()
    bias = torch.tensor([0.0, float("-inf"), 0.0, float("-inf"), 0.0]).double()
    some, weights = linear(tokens, linear.project(memory, bias), neighbours=False)
    every_other, _ = linear(tokens, linear.project(memory[::2]), neighbours=False)
    torch.testing.assert_close(some, every_other)
    assert (weights.memory[..., 1::2] == 0).all()
    hidden = linear.project(memory, torch.full((5,), float("-inf")).double())
    alone, _ = linear(tokens, None, neighbours=False)
    assert torch.equal(linear(tokens, hidden, neighbours=False)[0], alone)


def test_long_keys_and_queries_neither_overflow_nor_underflow():
    linear, _ = linear_and_exact(features=256)
    with torch.no_grad():
        linear.to_keys_values.weight.mul_(60)
        linear.to_queries.weight.mul_(60)
    linear.float()
    tokens = torch.randn(3, 16, requires_grad=True)
    found, _ = linear(tokens, linear.project(torch.randn(5, 16)), neighbours=True)
    found.sum().backward()
    assert found.isfinite().all()
    assert tokens.grad.isfinite().all()


def test_random_directions_are_orthogonal_in_blocks_of_normal_length_and_always_the_same():
    drawn = orthogonal_directions(count=4000, width=8)
    blocks = drawn.view(500, 8, 8)
    products = blocks @ blocks.transpose(1, 2)
    torch.testing.assert_close(products, torch.diag_embed(products.diagonal(dim1=1, dim2=2)))
    assert float(drawn.square().sum(dim=1).mean()) == pytest.approx(8, rel=0.05)
    torch.testing.assert_close(drawn.T @ drawn / 4000, torch.eye(8).double(), atol=0.1, rtol=0)
    state = torch.get_rng_state()
    assert torch.equal(orthogonal_directions(4000, 8), drawn)
    assert torch.equal(torch.get_rng_state(), state)
