"""ASAP: graphs are pooled to clusters of nodes, chosen by learned scores, before they are read."""

import warnings
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from hma.backbones.gnn.encoder import graphs_of
from hma.checks import expect_number, feature_dim_of
from hma.data import Task
from hma.data.graph.store import starts_of
from hma.extras import needed
from hma.methods.erm import erm
from hma.methods.learner import BackboneFactory, Method
from hma.options.config import SHARE
from hma.paper.rivals.subgraph_encoder import Inner, expect_share, of_hidden, of_nodes


@final
class PooledEncoder(nn.Module):
    """Encode nodes, pool them to clusters by PyG's ``ASAPooling``, and encode the clusters.

    Messages between clusters are weighted by what the pooling joins them with.

    Args:
        nodes: Gives features of nodes, as :class:`hma.backbones.GIN` does.
        encoder: Maps a batch of pooled graphs to ``(B, F)``.
        share: Share of the nodes of each graph that become clusters.
        dropout: Share of the attention inside a cluster that is dropped in training.

    Shape:
        - input: a PyG ``Batch`` of ``B`` graphs; output: ``(B, F)``.
    """

    def __init__(
        self, nodes: nn.Module, encoder: nn.Module, share: float, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.nodes = of_nodes(nodes)
        pyg = needed("torch_geometric.nn", "ASAP", extra="graph")
        self.pool = pyg.ASAPooling(feature_dim_of(nodes, None), ratio=share, dropout=dropout)
        # its sign, drawn once and never learned, would decide whether the fittest clusters are kept
        nn.init.ones_(self.pool.select.weight.requires_grad_(False))
        self.encoder = encoder
        self.dropout = dropout
        self.feature_dim = feature_dim_of(encoder, None)
        _hear_warnings()

    def forward(self, batch: Any) -> Tensor:
        """Return one vector per graph."""
        graph_of, graphs = graphs_of(batch)
        hidden = cast("Any", self.nodes).nodes(batch)  # (N, W)
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        ones = wide.new_ones(batch.edge_index.shape[1])  # of one dtype with the rest of the product
        with torch.autocast(hidden.device.type, enabled=False):
            x, edges, weight, cluster_of, _ = self.pool(wide, batch.edge_index, ones, graph_of)
        weight = weight.detach()  # PyG makes it of a product that has no gradient
        counts = torch.zeros(graphs, dtype=torch.long, device=x.device)
        counts = counts.index_add(0, cluster_of, torch.ones_like(cluster_of))
        pooled = needed("torch_geometric.data", "ASAP", extra="graph").Batch(
            x=x, edge_index=edges, edge_weight=weight, batch=cluster_of, ptr=starts_of(counts)
        )
        features: Tensor = self.encoder(pooled)
        return features

    def extra_repr(self) -> str:  # noqa: D102
        return f"dropout={self.dropout}"


def _hear_warnings() -> None:
    """Let torch say here what it says once of the sparse matrices that PyG uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero, one = torch.zeros(1, dtype=torch.long), torch.ones(1)
        torch.sparse_csr_tensor(torch.tensor([0, 1]), zero, one, (1, 1))
        torch.sparse_coo_tensor(zero.expand(2, 1), one, (1, 1)).to_sparse_csr()


def asap(
    backbone: BackboneFactory, inner: Inner = erm, *, share: float = 0.25, dropout: float = 0.0
) -> Method:
    """Return the method that predicts from graphs pooled to clusters of their nodes.

    Args:
        backbone: Makes an encoder for a task; two are made, before the pooling and after it.
        inner: What trains them.
        share: Share of the nodes of each graph that become clusters.
        dropout: Share of the attention inside a cluster that is dropped in training.
    """
    expect_share(share)
    expect_number("dropout", dropout, SHARE)

    def build(task: Task) -> nn.Module:
        nodes = of_nodes(backbone(task))
        clusters = of_hidden(backbone, task, feature_dim_of(nodes, None), ())
        return PooledEncoder(nodes, clusters, share, dropout)

    return inner(build)
