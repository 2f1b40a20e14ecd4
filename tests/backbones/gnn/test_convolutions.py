"""Edges and dropout of a graph network."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hma.backbones.gnn.convolutions import Edges
from hma.backbones.gnn.encoder import Dropout


def edges(nodes: int, count: int, seed: int) -> Edges:
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.randint(nodes, (2, count), generator=generator)
    return Edges(source, target, nodes)


@settings(deadline=None, max_examples=30)
@given(nodes=st.integers(1, 6), count=st.integers(0, 15), seed=st.integers(0, 100))
def test_every_node_gets_what_the_sources_of_its_edges_hold(nodes, count, seed):
    one = edges(nodes, count, seed)
    values = torch.randn(nodes, 3, dtype=torch.float64)
    expected, pairs = torch.zeros_like(values), list(zip(one.source, one.target, strict=True))
    for source, target in pairs:
        expected[target] += values[source]
    torch.testing.assert_close(one.sum_of(values), expected)
    assert one.arrivals.tolist() == [sum(t == v for _, t in pairs) for v in range(nodes)]
    assert one.departures.tolist() == [sum(s == v for s, _ in pairs) for v in range(nodes)]
    assert one.loops.tolist() == [sum(s == t == v for s, t in pairs) for v in range(nodes)]


def test_gradients_of_the_sum_are_right_to_the_second_order():
    one = edges(nodes=4, count=9, seed=1)
    values = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(one.sum_of, values)
    assert torch.autograd.gradgradcheck(lambda x: one.sum_of(x).pow(3), values)


def test_no_node_is_no_sum():
    none = torch.empty(0).long()
    assert Edges(none, none, nodes=0).sum_of(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_values_are_dropped_with_their_probability_and_the_rest_is_scaled(share):
    values = torch.rand(400, 100) + 1
    values.requires_grad_()
    dropped = Dropout(share)(values)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], values[kept] / (1 - share))
    deviation = (share * (1 - share) / values.numel()) ** 0.5
    assert abs(1 - kept.double().mean().item() - share) < 5 * deviation
    dropped.sum().backward()
    torch.testing.assert_close(values.grad, kept.float() / (1 - share))


def test_in_eval_mode_and_at_zero_values_stay_and_nothing_is_drawn():
    values = torch.rand(5, 4)
    before = torch.get_rng_state()
    assert Dropout(0.5).eval()(values) is values
    torch.testing.assert_close(Dropout(0.0)(values), values, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_same_state_of_the_generator_drops_the_same_values():
    values = torch.ones(50, 8)
    torch.manual_seed(7)
    first = Dropout(0.5)(values)
    torch.manual_seed(7)
    torch.testing.assert_close(Dropout(0.5)(values), first, rtol=0, atol=0)


def test_half_precision_stays_half_precision():
    assert Dropout(0.5)(torch.ones(4, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
