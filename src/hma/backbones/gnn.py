"""Graph encoders from PyG's convolutions: GIN and GCN, pooled to one vector per graph."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from hma.backbones.named_backbone import Asked, NamedBackbone
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
          and ``edge_attr`` ``(E, edge_features)`` where it is used.
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
        """Return the convolution of one layer, called with node features, edges and, if they are
        used, edge features.
        """

    def forward(self, batch: Any) -> Tensor:
        """Return one vector per graph."""
        graph_of, count = self._graphs(batch)
        edges = (batch.edge_index, batch.edge_attr) if self.edge_features else (batch.edge_index,)
        nodes = self.embed(batch.x)  # (N, in_features) -> (N, W)
        state = None if self.virtual_start is None else self.virtual_start.expand(count, -1)
        last = len(self.convolutions) - 1
        for layer, (convolve, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            if state is not None:
                nodes = nodes + state[graph_of]  # (N, W) + (B, W) of each node's graph
            if state is not None and layer < last:
                heard = self._sum(nodes, graph_of, count)  # (N, W) -> (B, W)
                state = self.virtual_nodes[layer](state, heard)
            nodes = convolve(nodes, *edges)  # (N, W) -> (N, W)
            if self.order == "relu-norm":
                nodes = norm(nodes.relu())
            else:
                nodes = norm(nodes) if layer == last else norm(nodes).relu()
            nodes = self.dropout(nodes)
        features = self._pool(nodes, graph_of, count)  # (N, W) -> (B, F)
        return features if self.project is None else self.project(features)

    def _graphs(self, batch: Any) -> tuple[Tensor, int]:
        """Return the graph of each node and the number of graphs, or say what does not fit."""
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
        graph_of = getattr(batch, "batch", None)
        if graph_of is None:
            return torch.zeros(len(nodes), dtype=torch.long, device=nodes.device), 1
        return graph_of, int(batch.num_graphs)

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


class GIN(GraphEncoder):
    r"""Graph isomorphism network: :math:`h_v \leftarrow MLP(h_v + \sum_{u \to v} h_u)` per layer.

    The MLP has two linear layers with a ReLU between. With edge features :math:`e_{uv}` the
    message is :math:`ReLU(h_u + W e_{uv})` (GINE). Arguments as :class:`GraphEncoder`.

    Example:
        >>> from hma.extras import needed
        >>> Data = needed("torch_geometric.data", "the example", extra="graph").Data
        >>> ring = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> GIN(in_features=4, width=16, num_layers=2)(ring).shape
        torch.Size([1, 16])
    """

    def convolution(self, width_in: int, width_out: int) -> nn.Module:
        """Return PyG's ``GINConv``, or ``GINEConv`` for edge features, over a two-layer MLP."""
        inner = nn.Sequential(
            nn.Linear(width_in, width_out), nn.ReLU(), nn.Linear(width_out, width_out)
        )
        pyg = needed("torch_geometric.nn", "a graph network", extra="graph")
        layer: nn.Module = (
            pyg.GINEConv(inner, edge_dim=self.edge_features)
            if self.edge_features
            else pyg.GINConv(inner)
        )
        return layer


class GCN(GraphEncoder):
    r"""Graph convolutional network: :math:`H \leftarrow \hat D^{-1/2}(A + I)\hat D^{-1/2} H W`.

    With edge features :math:`e_{uv}` an edge counts :math:`2 \sigma(w^T e_{uv})` instead of 1, with
    a vector :math:`w` of each layer that starts at 0. Arguments as :class:`GraphEncoder`.

    Example:
        >>> GCN(in_features=4, width=16).feature_dim
        16
    """

    def convolution(self, width_in: int, width_out: int) -> nn.Module:
        """Return PyG's ``GCNConv``, with learned weights of edges where they have features."""
        layer: nn.Module = needed("torch_geometric.nn", "a graph network", extra="graph").GCNConv(
            width_in, width_out
        )
        return WeighedEdges(layer, self.edge_features) if self.edge_features else layer


class WeighedEdges(nn.Module):
    """A convolution whose edges count as their features say: ``2 * sigmoid(w . e)``.

    Args:
        convolution: Takes node features, edges, and a weight for each edge.
        edge_features: Width of an edge's features.
    """

    def __init__(self, convolution: nn.Module, edge_features: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.weight = nn.Parameter(torch.zeros(edge_features))

    def forward(self, nodes: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the convolved nodes."""
        weights = 2 * torch.sigmoid(edge_attr @ self.weight)  # (E, A) -> (E,)
        convolved: Tensor = self.convolution(nodes, edge_index, weights)
        return convolved


def _built(kind: type[GraphEncoder], asked: Asked) -> GraphEncoder:
    nodes, *edges = asked.shape
    return kind(nodes, edge_features=sum(edges))


NAMED = (
    NamedBackbone("gin", ("graph",), partial(_built, GIN)),
    NamedBackbone("gcn", ("graph",), partial(_built, GCN)),
)
