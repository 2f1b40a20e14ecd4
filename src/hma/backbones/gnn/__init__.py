"""Graph networks: GIN and GCN over a PyG batch, pooled to one vector per graph."""

from functools import partial

from hma.backbones.gnn.encoder import GraphEncoder
from hma.backbones.gnn.kinds import GCN, GIN
from hma.backbones.named_backbone import Asked, NamedBackbone

__all__ = ["GCN", "GIN", "NAMED", "GraphEncoder"]


def _built(kind: type[GraphEncoder], asked: Asked) -> GraphEncoder:
    nodes, *edges = asked.shape
    return kind(nodes, edge_features=sum(edges))


NAMED = (
    NamedBackbone("gin", ("graph",), partial(_built, GIN)),
    NamedBackbone("gcn", ("graph",), partial(_built, GCN)),
)
