"""Graph networks: GIN and GCN over a PyG batch, pooled to one vector per graph."""

from functools import partial

from hma.backbones.gnn.codes import features_of
from hma.backbones.gnn.encoder import GraphEncoder
from hma.backbones.gnn.kinds import GCN, GIN
from hma.backbones.gnn.styles import STYLES, gcn, gin
from hma.backbones.named_backbone import Asked, NamedBackbone

__all__ = ["GCN", "GIN", "NAMED", "GraphEncoder", "gcn", "gin"]


def _built(kind: type[GraphEncoder], asked: Asked) -> GraphEncoder:
    """Return the default network; for codes, as molecules have them, OGB's."""
    nodes, edges = features_of(asked.shape)
    style = {} if isinstance(nodes, int) else STYLES["ogb"]
    return kind(nodes, edge_features=edges, **style)


NAMED = (
    NamedBackbone("gin", ("graph",), partial(_built, GIN)),
    NamedBackbone("gcn", ("graph",), partial(_built, GCN)),
)
