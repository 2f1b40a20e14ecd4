"""A graph network over a PyG batch: layers over the nodes, pooled to one vector per graph."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from hma.backbones.gnn.convolutions import (
    BatchNorm,
    Edges,
    Features,
    input_layer,
    multi_hot,
    width_of,
)
from hma.checks import expect_shape
from hma.errors import wrong_choice
from hma.extras import needed

Pool = Literal["mean", "max", "sum"]
Order = Literal["relu-norm", "norm-relu"]
Layers = Literal["plain", "ogb"]


def node_features(batch: Any, features: Features, dtype: torch.dtype) -> Tensor:
    """Return the features of the nodes, ``(N, in_features)``.

    Args:
        batch: A PyG ``Batch`` or ``Data``.
        features: How wide they are to be, or how many values their codes have.
        dtype: Of features made of codes.
    """
    nodes = getattr(batch, "x", None)
    if not isinstance(nodes, Tensor):
        raise TypeError(
            f"batch must be a torch_geometric Batch with node features x, got "
            f"{type(batch).__name__} whose x is {type(nodes).__name__}; where the graphs have "
            "no features, set x to the one-hot degree"
        )
    if isinstance(features, int):
        expect_shape("batch.x", nodes, None, features)
        if not nodes.is_floating_point():
            raise TypeError(
                f"batch.x must be of a floating dtype, got {nodes.dtype}; convert it with "
                "batch.x.float(), or give in_features the number of values of each column of codes"
            )
        return nodes
    expect_shape("batch.x", nodes, None, len(features))
    if nodes.dtype != torch.long:
        raise TypeError(
            f"batch.x must hold codes of dtype torch.int64, got {nodes.dtype}; where they are no "
            "codes, give in_features the width of the features"
        )
    return multi_hot(nodes, features).to(dtype)


def edges_of(batch: Any, features: Features, dtype: torch.dtype) -> Edges:
    """Return the edges of a batch, with their features and weights where there are some.

    Args:
        batch: A PyG ``Batch`` or ``Data``.
        features: How wide features of edges are to be, or how many values their codes have; 0
            for none.
        dtype: Of features made of codes.
    """
    source, target = batch.edge_index
    weight = getattr(batch, "edge_weight", None)
    if weight is not None:
        expect_shape("batch.edge_weight", weight, len(source))
    said = _edge_features(batch, features, dtype) if features else None
    return Edges(source, target, len(batch.x), weight, said)


def _edge_features(batch: Any, features: Features, dtype: torch.dtype) -> Tensor:
    said = getattr(batch, "edge_attr", None)
    count = batch.edge_index.shape[1]
    if isinstance(features, int):
        if not isinstance(said, Tensor) or not said.is_floating_point():
            raise _edge_error("a tensor of a floating dtype", said)
        expect_shape("batch.edge_attr", said, count, features)
        return said
    if not isinstance(said, Tensor) or said.dtype != torch.long:
        raise _edge_error("codes of dtype torch.int64", said)
    expect_shape("batch.edge_attr", said, count, len(features))
    return multi_hot(said, features).to(dtype)


def _edge_error(wanted: str, said: object) -> TypeError:
    got = said.dtype if isinstance(said, Tensor) else type(said).__name__
    return TypeError(
        f"batch.edge_attr must be {wanted}, got {got}; leave edge_features out for edges without "
        "features"
    )


def graphs_of(batch: Any) -> tuple[Tensor, int]:
    """Return the graph of each node ``(N,)``, and how many graphs there are."""
    graph_of = getattr(batch, "batch", None)
    if graph_of is None:
        return torch.zeros(len(batch.x), dtype=torch.long, device=batch.x.device), 1
    return graph_of, int(batch.num_graphs)


class Dropout(nn.Dropout):
    """Dropout whose mask is quick to draw on a CPU.

    ``nn.Dropout`` tosses a coin for each value there, which takes as long as the products of a
    layer; uniform numbers, compared with ``p``, are drawn several times as fast.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Zero a share ``p`` of the values and divide the others by ``1 - p``."""
        if not self.training or self.p == 0 or values.device.type != "cpu":
            dropped: Tensor = super().forward(values)
            return dropped
        kept = torch.rand(values.shape) >= self.p
        return values * kept.to(values.dtype).div_(1 - self.p)


class VirtualNode(nn.Module):
    """A node joined to all nodes of its graph: it receives their sum and sends to each of them.

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
        in_features: Width of the node features ``batch.x``; of integer codes, how many values each
            of their columns has: a code then stands for a learned vector, and a node starts as
            the sum of its own.
        width: Width of every layer and of the output, ``F``.
        num_layers: Number of convolutions.
        dropout: Share of each layer's output dropped in training.
        pool: How the nodes of a graph become one vector; a graph without nodes gives zeros.
        order: ``"relu-norm"`` normalises what the ReLU lets through, as g-mixup does;
            ``"norm-relu"`` normalises first and leaves the ReLU of the last layer out, as OGB does.
        virtual_node: Join all nodes of a graph to one more node between the layers, as OGB
            does; the node features then pass a linear layer first.
        project: Add a linear layer and a ReLU after the pool.
        edge_features: Width of ``batch.edge_attr``, which then is part of every message, or the
            values of its codes; 0 to leave edges as they are.
        layers: ``"ogb"`` for convolutions as in OGB's example and in CIGA's code, with rectified
            messages (:mod:`hma.backbones.gnn.convolutions`), after a linear layer of the node
            features; ``"plain"`` for PyG's.

    Shape:
        - input: a PyG ``Batch`` of ``B`` graphs, or one ``Data``, with ``x`` and ``edge_index``,
          and ``edge_attr`` ``(E, edge_features)`` where it is used. With ``edge_weight`` ``(E,)``
          every message is multiplied with the weight of its edge.
        - output: ``(B, F)``.
    """

    def __init__(
        self,
        in_features: Features,
        *,
        width: int = 64,
        num_layers: int = 5,
        dropout: float = 0.0,
        pool: Pool = "mean",
        order: Order = "relu-norm",
        virtual_node: bool = False,
        project: bool = False,
        edge_features: Features = 0,
        layers: Layers = "plain",
    ) -> None:
        super().__init__()
        _expect_sizes(in_features=width_of(in_features), width=width, num_layers=num_layers)
        _expect_sizes(least=0, edge_features=width_of(edge_features))
        _expect_choices(dropout, pool=(pool, Pool), order=(order, Order), layers=(layers, Layers))
        self.in_features = in_features
        self.edge_features = edge_features
        self.feature_dim = width
        self.pool = pool
        self._pool, self._sum = _pool_function(pool), _pool_function("sum")
        self.order = order
        self.layers = layers
        embeds = virtual_node or layers == "ogb" or not isinstance(in_features, int)
        self.embed = input_layer(in_features, width) if embeds else nn.Identity()
        widths = [width if embeds else width_of(in_features)] + [width] * (num_layers - 1)
        self.convolutions = nn.ModuleList(self.convolution(into, width) for into in widths)
        self.norms = nn.ModuleList(BatchNorm(width) for _ in widths)
        self.dropout = Dropout(dropout)
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
        dtype = next(self.parameters()).dtype
        nodes: Tensor = node_features(batch, self.in_features, dtype)
        edges = edges_of(batch, self.edge_features, dtype)
        graph_of, count = graphs_of(batch)
        nodes = self.embed(nodes)  # (N, in_features) -> (N, W)
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
        return self.projected(self._pool(nodes, *graphs_of(batch)))  # (N, W) -> (B, F)

    def unprojected(self, batch: Any) -> Tensor:
        """Return one vector per graph, ``(B, F)``, as it is after the pool."""
        return self._pool(self.nodes(batch), *graphs_of(batch))

    def projected(self, features: Tensor) -> Tensor:
        """Return what the layer after the pool makes of :meth:`unprojected`, if there is one."""
        return features if self.project is None else self.project(features)

    def extra_repr(self) -> str:
        """Show what the submodules do not."""
        return f"pool={self.pool!r}, order={self.order!r}, feature_dim={self.feature_dim}"


def _expect_sizes(least: int = 1, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")


def _expect_choices(dropout: float, **choices: tuple[str, Any]) -> None:
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    for name, (value, allowed) in choices.items():
        if value not in get_args(allowed):
            raise ValueError(wrong_choice(name, value, get_args(allowed)))


def _pool_function(pool: Pool) -> Callable[[Tensor, Tensor, int], Tensor]:
    pyg = needed("torch_geometric.nn", "a graph network", extra="graph")
    pools: dict[Pool, Callable[[Tensor, Tensor, int], Tensor]] = {
        "mean": pyg.global_mean_pool,
        "max": pyg.global_max_pool,
        "sum": pyg.global_add_pool,
    }
    return pools[pool]
