"""Layers of convolution over the nodes of a batch of graphs, pooled to one vector per graph."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from hma.backbones.gnn.edges import Edges
from hma.checks import expect_shape
from hma.errors import wrong_choice
from hma.extras import needed

Pool = Literal["mean", "max", "sum"]
Order = Literal["relu-norm", "norm-relu"]


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


class VirtualNode(nn.Module):
    """A node joined to all nodes of its graph: it hears their sum and speaks to each of them.

    Args:
        width: Width of the nodes, ``W``.
        dropout: Share of its values dropped in training.

    Shape:
        - ``state``, ``heard`` (the sum of each graph's nodes) and output: ``(B, W)``.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), BatchNorm(2 * width), nn.ReLU(),
            nn.Linear(2 * width, width), BatchNorm(width), nn.ReLU(), nn.Dropout(dropout),
        )  # fmt: skip

    def forward(self, state: Tensor, heard: Tensor) -> Tensor:
        """Return the state after one exchange."""
        after: Tensor = self.layers(state + heard)
        return after


class GraphEncoder(nn.Module, ABC):
    """Layers of convolution, ReLU, BatchNorm and dropout over the nodes, pooled per graph.

    :class:`GIN` and :class:`GCN` say which convolution. The defaults are g-mixup's network
    (5 layers of 64, mean pool) but for its hidden layer before the head: ``project=True``.

    Args:
        in_features: Width of the node features ``batch.x``.
        width: Width of every layer and of the output, ``F``.
        num_layers: Number of convolutions.
        dropout: Share of each layer's output dropped in training.
        pool: How the nodes of a graph become one vector; a graph without nodes gives zeros.
        order: ``"relu-norm"`` normalises what the ReLU lets through, as g-mixup does;
            ``"norm-relu"`` normalises first and leaves the ReLU of the last layer out, as OGB does.
        virtual_node: Join all nodes of a graph to one more node between the layers, as OGB
            does; the node features then pass a linear layer first.
        project: Add a linear layer and a ReLU after the pool.
        edge_features: Width of ``batch.edge_attr``, which then is part of every message; 0 to
            leave edges as they are.

    Shape:
        - input: a PyG ``Batch`` of ``B`` graphs, or one ``Data``, with ``x`` and ``edge_index``,
          and ``edge_attr`` ``(E, edge_features)`` where it is used. With ``edge_weight`` ``(E,)``
          every message is multiplied with the weight of its edge.
        - output: ``(B, F)``.
    """

    def __init__(
        self,
        in_features: int,
        *,
        width: int = 64,
        num_layers: int = 5,
        dropout: float = 0.0,
        pool: Pool = "mean",
        order: Order = "relu-norm",
        virtual_node: bool = False,
        project: bool = False,
        edge_features: int = 0,
    ) -> None:
        super().__init__()
        _expect_sizes(in_features=in_features, width=width, num_layers=num_layers)
        _expect_sizes(least=0, edge_features=edge_features)
        _expect_choices(dropout, pool, order)
        self.in_features = in_features
        self.edge_features = edge_features
        self.feature_dim = width
        self.pool = pool
        self._pool, self._sum = _pool_function(pool), _pool_function("sum")
        self.order = order
        self.embed = nn.Linear(in_features, width) if virtual_node else nn.Identity()
        widths = [width if virtual_node else in_features] + [width] * (num_layers - 1)
        self.convolutions = nn.ModuleList(self.convolution(into, width) for into in widths)
        self.norms = nn.ModuleList(BatchNorm(width) for _ in widths)
        self.dropout = nn.Dropout(dropout)
        exchanges = num_layers - 1 if virtual_node else 0
        self.virtual_nodes = nn.ModuleList(VirtualNode(width, dropout) for _ in range(exchanges))
        self.virtual_start = nn.Parameter(torch.zeros(1, width)) if virtual_node else None
        self.project = nn.Sequential(nn.Linear(width, width), nn.ReLU()) if project else None

    @abstractmethod
    def convolution(self, width_in: int, width_out: int) -> nn.Module:
        """Return the convolution of one layer, called with node features and :class:`Edges`."""

    def forward(self, batch: Any) -> Tensor:
        """Return one vector per graph."""
        return self.pooled(self.nodes(batch), batch)

    def nodes(self, batch: Any) -> Tensor:
        """Return one vector per node, ``(N, W)``, as it is before the pool."""
        self._expect_features(batch)
        edges = self._edges(batch)
        graph_of, count = graphs_of(batch)
        nodes: Tensor = self.embed(batch.x)  # (N, in_features) -> (N, W)
        state = None if self.virtual_start is None else self.virtual_start.expand(count, -1)
        last = len(self.convolutions) - 1
        for layer, (convolve, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            if state is not None:
                nodes = nodes + state[graph_of]  # (N, W) + (B, W) of each node's graph
            if state is not None and layer < last:
                heard = self._sum(nodes, graph_of, count)  # (N, W) -> (B, W)
                state = self.virtual_nodes[layer](state, heard)
            nodes = convolve(nodes, edges)  # (N, W) -> (N, W)
            if self.order == "relu-norm":
                nodes = norm(nodes.relu())
            else:
                nodes = norm(nodes) if layer == last else norm(nodes).relu()
            nodes = self.dropout(nodes)
        return nodes

    def pooled(self, nodes: Tensor, batch: Any) -> Tensor:
        """Return one vector per graph of what :meth:`nodes` returned."""
        features = self._pool(nodes, *graphs_of(batch))  # (N, W) -> (B, F)
        return features if self.project is None else self.project(features)

    def _edges(self, batch: Any) -> Edges:
        source, target = batch.edge_index
        features = batch.edge_attr if self.edge_features else None
        weight = getattr(batch, "edge_weight", None)
        if weight is not None:
            expect_shape("batch.edge_weight", weight, len(source))
        return Edges(source, target, len(batch.x), weight, features)

    def _expect_features(self, batch: Any) -> None:
        """Raise unless nodes and edges have the features that the encoder takes."""
        nodes = getattr(batch, "x", None)
        if not isinstance(nodes, Tensor):
            raise TypeError(
                f"batch must be a torch_geometric Batch with node features x, got "
                f"{type(batch).__name__} whose x is {type(nodes).__name__}; where the graphs have "
                "no features, set x to the one-hot degree"
            )
        expect_shape("batch.x", nodes, None, self.in_features)
        if not nodes.is_floating_point():
            raise TypeError(
                f"batch.x must be of a floating dtype, got {nodes.dtype}; convert it with "
                "batch.x.float()"
            )
        if self.edge_features:
            self._expect_edge_features(batch)

    def _expect_edge_features(self, batch: Any) -> None:
        features = getattr(batch, "edge_attr", None)
        if not isinstance(features, Tensor) or not features.is_floating_point():
            said = features.dtype if isinstance(features, Tensor) else type(features).__name__
            raise TypeError(
                f"batch.edge_attr must be a tensor of a floating dtype, got {said}; leave "
                "edge_features out for edges without features"
            )
        expect_shape("batch.edge_attr", features, batch.edge_index.shape[1], self.edge_features)

    def extra_repr(self) -> str:
        """Show what the parts do not."""
        return f"pool={self.pool!r}, order={self.order!r}, feature_dim={self.feature_dim}"


def graphs_of(batch: Any) -> tuple[Tensor, int]:
    """Return the graph of each node ``(N,)``, and how many graphs there are."""
    graph_of = getattr(batch, "batch", None)
    if graph_of is None:
        return torch.zeros(len(batch.x), dtype=torch.long, device=batch.x.device), 1
    return graph_of, int(batch.num_graphs)


def _expect_sizes(least: int = 1, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")


def _expect_choices(dropout: float, pool: str, order: str) -> None:
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    for name, value, allowed in (("pool", pool, get_args(Pool)), ("order", order, get_args(Order))):
        if value not in allowed:
            raise ValueError(wrong_choice(name, value, allowed))


def _pool_function(pool: Pool) -> Callable[[Tensor, Tensor, int], Tensor]:
    pyg = needed("torch_geometric.nn", "a graph network", extra="graph")
    pools: dict[Pool, Callable[[Tensor, Tensor, int], Tensor]] = {
        "mean": pyg.global_mean_pool,
        "max": pyg.global_max_pool,
        "sum": pyg.global_add_pool,
    }
    return pools[pool]
