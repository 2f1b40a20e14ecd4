"""The edges of a batch of graphs: how messages along them are summed, shared by all layers."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


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
        return self.arriving(values.index_select(0, self.source))  # (N, W) -> (E, W)

    def arriving(self, messages: Tensor) -> Tensor:
        """Return the sum of the messages ``(E, W)``, times their weights, at each node."""
        if self.weight is not None:
            messages = messages * self.weight[:, None]
        summed = messages.new_zeros(self.nodes, messages.shape[1])
        return summed.index_add(0, self.target, messages)  # (E, W) -> (N, W)

    @cached_property
    def joins_two(self) -> Tensor:
        """Whether an edge joins two nodes and is no loop, ``(E,)``."""
        return self.source != self.target

    def counted(self, like: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return as how many edges a node's own loop counts ``(N,)``, and each edge, ``(E,)``.

        A node without a loop has one that counts 1; loops that are listed count there, and 0 among
        the edges.

        Args:
            like: A tensor of the dtype wanted.
            counts: As how many each edge counts, ``(E,)``; None for one.
        """
        joined = self.joins_two.to(like.dtype)
        own = like.new_ones(self.nodes)
        if counts is None:
            return own, joined
        loops = own.new_zeros(self.nodes).index_add(0, self.target, 1 - joined)
        summed = own.new_zeros(self.nodes).index_add(0, self.target, (1 - joined) * counts)
        own = torch.where(loops > 0, summed / loops.clamp(min=1), own)
        return own, joined * counts
