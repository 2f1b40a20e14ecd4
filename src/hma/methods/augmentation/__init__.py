"""Methods around a method that train it on changed or mixed rows; at test nothing is changed."""

from hma.methods.augmentation.drop_edge import drop_edge
from hma.methods.augmentation.drop_node import drop_node
from hma.methods.augmentation.g_mixup import g_mixup
from hma.methods.augmentation.manifold_mixup import manifold_mixup
from hma.methods.augmentation.subgraph import subgraph

__all__ = ["drop_edge", "drop_node", "g_mixup", "manifold_mixup", "subgraph"]
