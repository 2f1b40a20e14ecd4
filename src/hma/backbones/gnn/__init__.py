"""Graph networks: GIN and GCN over a PyG batch, pooled to one vector per graph."""

from hma.backbones.gnn.encoder import GraphEncoder
from hma.backbones.gnn.networks import GCN, GIN, NAMED, gcn, gin

__all__ = ["GCN", "GIN", "NAMED", "GraphEncoder", "gcn", "gin"]
