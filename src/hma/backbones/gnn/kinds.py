"""Which convolution a graph encoder has: GIN or GCN."""

import torch
from torch import Tensor, nn

from hma.backbones.gnn.edges import Edges
from hma.backbones.gnn.encoder import GraphEncoder


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
        """Return a sum over edges and a two-layer MLP."""
        return GINConvolution(width_in, width_out, self.edge_features)


class GINConvolution(nn.Module):
    """One layer of :class:`GIN`.

    Args:
        width_in, width_out: Width of the nodes before and after.
        edge_features: Width of an edge's features; 0 for none.
    """

    eps: Tensor

    def __init__(self, width_in: int, width_out: int, edge_features: int = 0) -> None:
        super().__init__()
        self.nn = nn.Sequential(
            nn.Linear(width_in, width_out), nn.ReLU(), nn.Linear(width_out, width_out)
        )
        self.register_buffer("eps", torch.zeros(1))
        self.lin = nn.Linear(edge_features, width_in) if edge_features else None
        for layer in (*self.nn, self.lin):  # drawn anew: a seed gives the weights it always gave
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def forward(self, nodes: Tensor, edges: Edges) -> Tensor:
        """Return the nodes ``(N, width_in)`` after the layer, ``(N, width_out)``."""
        if self.lin is None:
            summed = edges.sum_of(nodes)
        else:
            said = self.lin(edges.features)  # (E, A) -> (E, width_in)
            summed = edges.arriving((nodes.index_select(0, edges.source) + said).relu())
        mixed: Tensor = self.nn((1 + self.eps) * nodes + summed)
        return mixed


class GCN(GraphEncoder):
    r"""Graph convolutional network: :math:`H \leftarrow \hat D^{-1/2}(A + I)\hat D^{-1/2} H W`.

    With edge features :math:`e_{uv}` an edge counts :math:`2 \sigma(w^T e_{uv})` instead of 1, with
    a vector :math:`w` of each layer that starts at 0. A loop that is listed stands for the one that
    :math:`I` adds. ``edge_weight`` leaves :math:`\hat D` as it is: an edge of weight 0 sends
    nothing, but still counts for the degree of its target. Arguments as :class:`GraphEncoder`.

    Example:
        >>> GCN(in_features=4, width=16).feature_dim
        16
    """

    def convolution(self, width_in: int, width_out: int) -> nn.Module:
        """Return a normalised sum, with learned weights of edges where they have features."""
        layer = GCNConvolution(width_in, width_out)
        return WeighedEdges(layer, self.edge_features) if self.edge_features else layer


class GCNConvolution(nn.Module):
    """One layer of :class:`GCN`.

    Args:
        width_in, width_out: Width of the nodes before and after.
    """

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.lin = nn.Linear(width_in, width_out, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        self.bias = nn.Parameter(torch.zeros(width_out))

    def forward(self, nodes: Tensor, edges: Edges, counts: Tensor | None = None) -> Tensor:
        """Return the nodes ``(N, width_in)`` after the layer, ``(N, width_out)``.

        Args:
            nodes: Before the layer.
            edges: All edges of the batch.
            counts: As how many edges each of them counts, ``(E,)``; None for one.
        """
        own, joined = edges.counted(nodes, counts)  # (N,), (E,)
        degree = own + joined.new_zeros(edges.nodes).index_add(0, edges.target, joined)
        scale = degree.rsqrt()[:, None]  # (N, 1)
        scaled = self.lin(nodes) * scale  # (N, width_in) -> (N, width_out)
        summed = edges.arriving(scaled.index_select(0, edges.source) * joined[:, None])
        mixed: Tensor = (summed + scaled * own[:, None]) * scale + self.bias
        return mixed


class WeighedEdges(nn.Module):
    """A convolution whose edges count as their features say: ``2 * sigmoid(w . e)``.

    Args:
        convolution: Takes node features, edges, and as how many each edge counts.
        edge_features: Width of an edge's features.
    """

    def __init__(self, convolution: nn.Module, edge_features: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.weight = nn.Parameter(torch.zeros(edge_features))

    def forward(self, nodes: Tensor, edges: Edges) -> Tensor:
        """Return the convolved nodes."""
        assert edges.features is not None
        counts = 2 * torch.sigmoid(edges.features @ self.weight)  # (E, A) -> (E,)
        convolved: Tensor = self.convolution(nodes, edges, counts)
        return convolved
