"""Graph networks by their convolution, GIN and GCN, in the styles of three published codes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from torch import nn

from hma.backbones.gnn.convolutions import (
    GCNConvolution,
    GINConvolution,
    RectifiedGCN,
    RectifiedGIN,
    WeighedEdges,
    features_of,
)
from hma.backbones.gnn.encoder import GraphEncoder
from hma.backbones.named_backbone import BackboneRequest, Described, NamedBackbone
from hma.errors import wrong_choice

Style = Literal["g-mixup", "ogb", "ciga"]
Network = TypeVar("Network", bound=GraphEncoder)
STYLES: Mapping[Style, Mapping[str, Any]] = {
    "g-mixup": {"width": 64, "num_layers": 5, "order": "relu-norm", "project": True},
    "ogb": {
        "width": 300, "num_layers": 5, "order": "norm-relu", "dropout": 0.5, "layers": "ogb",
    },
    "ciga": {
        "width": 32, "num_layers": 3, "order": "norm-relu", "dropout": 0.3, "layers": "ogb",
    },
}  # fmt: skip
"""Arguments of a :class:`GraphEncoder` for each."""


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


def gin(style: Style = "g-mixup", **changes: Any) -> Callable[[Described], GIN]:
    """Return a function that builds the GIN of a published code for a task.

    Args:
        style: ``"g-mixup"`` (ahxt/g-mixup), ``"ogb"`` (OGB's example for molecules, with learned
            vectors of atoms and bonds where a task has codes) or ``"ciga"`` (LFhase/CIGA: OGB's
            layers after a linear layer of the node features, sized for TU data).
        changes: Arguments of :class:`GraphEncoder` that differ, such as ``virtual_node=True``.

    Example:
        >>> from types import SimpleNamespace
        >>> task = SimpleNamespace(name="PROTEINS", kind="graph", shape=(3,))
        >>> gin("ciga", pool="max")(task).feature_dim
        32
    """
    return _build_styled(GIN, style, changes)


def gcn(style: Style = "g-mixup", **changes: Any) -> Callable[[Described], GCN]:
    """Return a function that builds a GCN for a task; arguments as :func:`gin`."""
    return _build_styled(GCN, style, changes)


def _build_styled(
    kind: type[Network], style: Style, changes: Mapping[str, Any]
) -> Callable[[Described], Network]:
    if style not in STYLES:
        raise ValueError(wrong_choice("style", style, get_args(Style)))
    options = {**STYLES[style], **changes}

    def build(task: Described) -> Network:
        nodes, edges = features_of(task.shape)
        return kind(nodes, **{"edge_features": edges, **options})

    return build


def _build(kind: type[GraphEncoder], request: BackboneRequest) -> GraphEncoder:
    """Return the default network; for codes, as molecules have them, OGB's."""
    nodes, edges = features_of(request.shape)
    style = {} if isinstance(nodes, int) else STYLES["ogb"]
    return kind(nodes, edge_features=edges, **style)


NAMED = (
    NamedBackbone("gin", ("graph",), partial(_build, GIN)),
    NamedBackbone("gcn", ("graph",), partial(_build, GCN)),
)
