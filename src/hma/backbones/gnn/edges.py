"""The edges of a batch of graphs: what nodes send along them, summed; shared by all layers."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

Listed = tuple[Tensor, Tensor]
"""Nodes ``(E,)`` at the far end of every node's edges, node by node; where each node's begin."""


@dataclass(frozen=True)
class Edges:
    """Edges from ``source`` to ``target``, each with what it carries.

    Args:
        source, target: Nodes at its ends, ``(E,)``.
        nodes: Number of nodes, ``N``.
        weight: What its message is multiplied with, ``(E,)``; None for 1.
        features: What it says of itself, ``(E, A)``; None for nothing.

    Example:
        >>> edges = Edges(torch.tensor([0, 1]), torch.tensor([2, 2]), nodes=3)
        >>> edges.sum_of(torch.tensor([[1.0], [10.0], [100.0]])).flatten().tolist()
        [0.0, 0.0, 11.0]
    """

    source: Tensor
    target: Tensor
    nodes: int
    weight: Tensor | None = None
    features: Tensor | None = None

    def sum_of(self, values: Tensor) -> Tensor:
        """Return for each node the sum over its edges of what their sources hold, ``(N, W)``."""
        if self.weight is not None:
            return self.sum_arriving(values.index_select(0, self.source))  # (N, W) -> (E, W)
        if not len(self.source):
            return torch.zeros_like(values)
        summed: Tensor = _SumAlong.apply(values, self, False)  # type: ignore[no-untyped-call]
        return summed

    def sum_arriving(self, messages: Tensor) -> Tensor:
        """Return the sum of the messages ``(E, W)``, times their weights, at each node."""
        if self.weight is not None:
            messages = messages * self.weight[:, None]
        return self.total_at_target(messages)

    def total_at_target(self, values: Tensor) -> Tensor:
        """Return the sum of ``values`` ``(E, ...)`` of each node's edges, ``(N, ...)``."""
        return values.new_zeros(self.nodes, *values.shape[1:]).index_add(0, self.target, values)

    @cached_property
    def arrivals(self) -> Tensor:
        """How many edges arrive at each node, ``(N,)``."""
        return torch.bincount(self.target, minlength=self.nodes)

    @cached_property
    def departures(self) -> Tensor:
        """How many edges leave each node, ``(N,)``."""
        return torch.bincount(self.source, minlength=self.nodes)

    @cached_property
    def loops(self) -> Tensor:
        """How many edges each node has to itself, ``(N,)``."""
        return self.total_at_target((self.source == self.target).long())

    @cached_property
    def by_target(self) -> Listed:
        """The sources of each node's edges."""
        return self.source[torch.argsort(self.target)], _starts(self.arrivals)

    @cached_property
    def by_source(self) -> Listed:
        """The targets of each node's edges."""
        return self.target[torch.argsort(self.source)], _starts(self.departures)


def _starts(counts: Tensor) -> Tensor:
    return counts.cumsum(dim=0) - counts


class _SumAlong(torch.autograd.Function):
    """Sums along edges, or against them, without a copy of each edge's values.

    The gradient of the one is the other, so that it has gradients of any order.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, edges: Edges, against: bool) -> Tensor:
        """Return the sums ``(N, W)``."""
        ctx.edges, ctx.against = edges, against
        listed, starts = edges.by_source if against else edges.by_target
        return embedding_bag(listed, values.contiguous(), starts, mode="sum")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the values."""
        back: Tensor = _SumAlong.apply(  # type: ignore[no-untyped-call]
            gradient, ctx.edges, not ctx.against
        )
        return back, None, None
