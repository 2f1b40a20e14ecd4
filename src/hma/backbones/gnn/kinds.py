"""Graph networks by their convolution: GIN and GCN."""

from torch import nn

from hma.backbones.gnn.convolutions import (
    GCNConvolution,
    GINConvolution,
    RectifiedGCN,
    RectifiedGIN,
    WeighedEdges,
)
from hma.backbones.gnn.encoder import GraphEncoder


class GIN(GraphEncoder):
    r"""Graph isomorphism network: :math:`h_v \leftarrow MLP(h_v + \sum_{u \to v} h_u)` per layer.

    The MLP has two linear layers with a ReLU between. With edge features :math:`e_{uv}` the
    message is :math:`ReLU(h_u + W e_{uv})` (GINE). Arguments as :class:`GraphEncoder`.

    Example:
        >>> import torch
        >>> from hma.extras import needed
        >>> Data = needed("torch_geometric.data", "the example", extra="graph").Data
        >>> ring = Data(x=torch.rand(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
        >>> GIN(in_features=4, width=16, num_layers=2)(ring).shape
        torch.Size([1, 16])
    """

    def convolution(self, width_in: int, width_out: int) -> nn.Module:
        """Return a sum over edges and a two-layer MLP."""
        if self.layers == "ogb":
            return RectifiedGIN(width_out, self.edge_features)
        return GINConvolution(width_in, width_out, self.edge_features)


class GCN(GraphEncoder):
    r"""Graph convolutional network: :math:`H \leftarrow \hat D^{-1/2}(A + I)\hat D^{-1/2} H W`.

    With edge features :math:`e_{uv}` an edge counts :math:`2 \sigma(w^T e_{uv})` instead of 1, with
    a vector :math:`w` of each layer that starts at 0. ``edge_weight`` leaves :math:`\hat D` as it
    is: an edge of weight 0 sends nothing, but still counts for the degrees of its ends. Arguments
    as :class:`GraphEncoder`.

    Example:
        >>> GCN(in_features=4, width=16).feature_dim
        16
    """

    def convolution(self, width_in: int, width_out: int) -> nn.Module:
        """Return a normalised sum, with learned weights of edges where they have features."""
        if self.layers == "ogb":
            return RectifiedGCN(width_out, self.edge_features)
        layer = GCNConvolution(width_in, width_out)
        return WeighedEdges(layer, self.edge_features) if self.edge_features else layer
