"""One layer of a graph network, GIN's and GCN's, and the codes, edges and norm it works on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

Features = int | Sequence[int]
"""How wide features are; or, of codes, how many values each column of them has."""
Sizes = tuple[int, ...]
Listed = tuple[Tensor, Tensor]
"""Nodes ``(E,)`` at the far end of every node's edges, node by node; where each node's begin."""


def features_of(shape: tuple[int, ...]) -> tuple[Features, Features]:
    """Return the features of nodes and of edges that the shape of a graph stands for.

    Args:
        shape: ``(node features,)`` or ``(node features, edge features)``. Of codes: how many values
            each column of a node has, a 0, how many each column of an edge has.

    Example:
        >>> features_of((7,)), features_of((7, 2)), features_of((119, 5, 0, 5, 6))
        ((7, 0), (7, 2), ((119, 5), (5, 6)))
    """
    if 0 in shape:
        between = shape.index(0)
        return shape[:between], shape[between + 1 :]
    nodes, *edges = shape
    return nodes, sum(edges)


def width_of(features: Features) -> int:
    """Return how wide features are, with a column for each value of each code."""
    return features if isinstance(features, int) else sum(features)


def multi_hot(codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Encode codes ``(n, K)`` as one-hot columns side by side, ``(n, sum(sizes))``.

    Example:
        >>> multi_hot(torch.tensor([[1, 0], [0, 2]]), sizes=(2, 3)).tolist()
        [[0.0, 1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 1.0]]
    """
    ends = torch.tensor(sizes, device=codes.device).cumsum(dim=0)  # (K,)
    places = codes + ends - torch.tensor(sizes, device=codes.device)
    places = torch.where((codes >= 0) & (places < ends), places, -1)  # which scatter refuses
    hot = torch.zeros(len(codes), sum(sizes), device=codes.device)
    return hot.scatter_(1, places, 1.0)


def input_layer(features: Features, width: int) -> nn.Linear:
    """Return a linear layer of features; of codes, one learned vector for each value, summed.

    Args:
        features: Of the input.
        width: Of the output.
    """
    if isinstance(features, int):
        return nn.Linear(features, width)
    layer = nn.Linear(sum(features), width, bias=False)
    for part in torch.split(layer.weight, list(features), dim=1):
        nn.init.xavier_uniform_(part)  # each column for itself, as OGB starts its encoders
    return layer


@dataclass(frozen=True)
class Edges:
    """Edges from ``source`` to ``target``, with their weights and features.

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
        """Sum the values of the sources of each node's edges, ``(N, W)``."""
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


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that a training batch of one row passes with the running statistics.

    One row has no variance, and the last batch of an epoch may well be one graph.
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Return the normalised rows."""
        if self.training and len(rows) < 2:
            mean, variance = self.running_mean, self.running_var
            return nn.functional.batch_norm(rows, mean, variance, self.weight, self.bias)
        normed: Tensor = super().forward(rows)
        return normed


class GINConvolution(nn.Module):
    r"""Sum, then MLP: :math:`h_v \leftarrow MLP(h_v + \sum_{u \to v} h_u)`.

    With edge features the message is :math:`ReLU(h_u + W e_{uv})`, as PyG's ``GINEConv`` has it.

    Args:
        width_in, width_out: Width of the nodes before and after.
        edge_features: Of an edge; 0 for none.

    Shape:
        - input: ``(N, width_in)`` and :class:`Edges`; output: ``(N, width_out)``.
    """

    eps: Tensor

    def __init__(self, width_in: int, width_out: int, edge_features: Features = 0) -> None:
        super().__init__()
        self.nn = nn.Sequential(
            nn.Linear(width_in, width_out), nn.ReLU(), nn.Linear(width_out, width_out)
        )
        self.register_buffer("eps", torch.zeros(1))  # saved models have it; it is always 0
        self.lin = input_layer(edge_features, width_in) if edge_features else None
        for layer in (*self.nn, *([self.lin] if isinstance(edge_features, int) else [])):
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()  # drawn anew: a seed gives the weights it always gave

    def forward(self, nodes: Tensor, edges: Edges) -> Tensor:
        """Return the nodes after the layer."""
        first: Any = self.nn[0]
        if self.lin is not None:
            said = self.lin(edges.features)  # (E, A) -> (E, width_in)
            summed = edges.sum_arriving((nodes.index_select(0, edges.source) + said).relu())
            hidden = first(nodes + summed)
        elif first.in_features > 2 * first.out_features:  # sums are cheaper where nodes are narrow
            narrow = nn.functional.linear(nodes, first.weight)
            hidden = narrow + edges.sum_of(narrow) + first.bias
        else:
            hidden = first(nodes + edges.sum_of(nodes))
        mixed: Tensor = self.nn[2](hidden.relu())
        return mixed


class GCNConvolution(nn.Module):
    r"""Normalised sum: :math:`H \leftarrow \hat D^{-1/2}(A + I)\hat D^{-1/2} H W + b`.

    With edge features an edge counts :math:`2 \sigma(w^T e_{uv})` in :math:`A`, with a vector
    :math:`w` that starts at 0. A loop that is listed stands for the one that :math:`I` adds.

    Args:
        width_in, width_out: Width of the nodes before and after.

    Shape:
        - input: ``(N, width_in)`` and :class:`Edges`; output: ``(N, width_out)``.
    """

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.lin = nn.Linear(width_in, width_out, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        self.bias = nn.Parameter(torch.zeros(width_out))

    def forward(self, nodes: Tensor, edges: Edges, counts: Tensor | None = None) -> Tensor:
        """Return the nodes after the layer.

        Args:
            nodes: Before the layer.
            edges: All edges of the batch.
            counts: As how many edges each of them counts, ``(E,)``; None for one.
        """
        own = 1 - edges.loops  # (N,): 0 where a loop is listed
        degree = own + (edges.arrivals if counts is None else edges.total_at_target(counts))
        scale = degree.to(nodes.dtype).rsqrt()[:, None]  # (N, 1)
        scaled = self.lin(nodes) * scale  # (N, width_in) -> (N, width_out)
        if counts is None:
            summed = edges.sum_of(scaled)
        else:
            sent = scaled.index_select(0, edges.source) * counts[:, None]  # (E, width_out)
            summed = edges.sum_arriving(sent)
        mixed: Tensor = (summed + scaled * own[:, None]) * scale + self.bias
        return mixed


class WeighedEdges(nn.Module):
    """A convolution whose edges count as their features say: ``2 * sigmoid(w . e)``.

    Args:
        convolution: Takes node features, edges, and as how many each edge counts.
        edge_features: Of an edge.
    """

    def __init__(self, convolution: nn.Module, edge_features: Features) -> None:
        super().__init__()
        self.convolution = convolution
        self.weight = nn.Parameter(torch.zeros(width_of(edge_features)))

    def forward(self, nodes: Tensor, edges: Edges) -> Tensor:
        """Return the convolved nodes."""
        assert edges.features is not None
        counts = 2 * torch.sigmoid(edges.features @ self.weight)  # (E, A) -> (E,)
        convolved: Tensor = self.convolution(nodes, edges, counts)
        return convolved


class RectifiedGIN(nn.Module):
    r"""GIN of OGB's example: :math:`MLP((1 + \epsilon) h_v + \sum_{u \to v} ReLU(h_u + e_{uv}))`.

    The MLP is twice as wide inside, with a BatchNorm, and :math:`\epsilon` is learned from 0.

    Args:
        width: Of the nodes, ``W``.
        edge_features: Of an edge, made ``W`` wide by a layer of its own; 0 for messages
            :math:`ReLU(h_u)`, as CIGA's code has them.

    Shape:
        - input: ``(N, W)`` and :class:`Edges`; output: ``(N, W)``.
    """

    def __init__(self, width: int, edge_features: Features = 0) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), BatchNorm(2 * width), nn.ReLU(),
            nn.Linear(2 * width, width),
        )  # fmt: skip
        self.eps = nn.Parameter(torch.zeros(1))
        self.edge_encoder = input_layer(edge_features, width) if edge_features else None

    def forward(self, nodes: Tensor, edges: Edges) -> Tensor:
        """Return the nodes after the layer."""
        summed = sum_rectified(nodes, edges, self.edge_encoder)
        mixed: Tensor = self.mlp((1 + self.eps) * nodes + summed)
        return mixed


class RectifiedGCN(nn.Module):
    r"""GCN of OGB's example, with :math:`x = Wh + b` and the degree :math:`d_v` plus one.

    .. math:: h_v \leftarrow \frac{ReLU(x_v + r)}{d_v}
        + \sum_{u \to v} \frac{ReLU(x_u + e_{uv})}{\sqrt{d_u d_v}}

    Degrees count the edges that leave a node, and :math:`r` is learned.

    Args:
        width: Of the nodes, ``W``.
        edge_features: As :class:`RectifiedGIN` has them.

    Shape:
        - input: ``(N, W)`` and :class:`Edges`; output: ``(N, W)``.
    """

    def __init__(self, width: int, edge_features: Features = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.root = nn.Parameter(torch.randn(1, width))
        self.edge_encoder = input_layer(edge_features, width) if edge_features else None

    def forward(self, nodes: Tensor, edges: Edges) -> Tensor:
        """Return the nodes after the layer."""
        nodes = self.linear(nodes)
        scale = (edges.departures + 1).to(nodes.dtype).rsqrt()[:, None]  # (N, 1)
        summed = sum_rectified(nodes, edges, self.edge_encoder, scale)
        return (nodes + self.root).relu() * scale.square() + summed * scale


def sum_rectified(
    nodes: Tensor, edges: Edges, encoder: nn.Module | None, scale: Tensor | None = None
) -> Tensor:
    """Return for each node the sum of the messages ``ReLU(h_u + e_uv)`` it gets, ``(N, W)``.

    Args:
        nodes: ``(N, W)``.
        edges: All edges of the batch.
        encoder: Makes edge features ``W`` wide; None for messages ``ReLU(h_u)``.
        scale: What messages of each node are multiplied with, ``(N, 1)``; None for 1.
    """
    if encoder is None:
        sent = nodes.relu()
        return edges.sum_of(sent if scale is None else sent * scale)
    messages = (nodes.index_select(0, edges.source) + encoder(edges.features)).relu()  # (E, W)
    if scale is not None:
        messages = messages * scale.index_select(0, edges.source)
    return edges.sum_arriving(messages)
