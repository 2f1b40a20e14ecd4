"""Sums over edges against a loop in float64."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hma.backbones.gnn.edges import Edges


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
