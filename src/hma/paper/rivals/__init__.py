"""What the paper's tables compare a memory with: methods, most of them around another method."""

from hma.paper.rivals.asap import asap
from hma.paper.rivals.batch_attention import batchformer, npt
from hma.paper.rivals.changed_graphs import drop_edge, drop_node, subgraph
from hma.paper.rivals.g_mixup import g_mixup
from hma.paper.rivals.invariance import ib_irm, irm, random_environments, vrex
from hma.paper.rivals.invariant_subgraphs import ciga, dir_
from hma.paper.rivals.knn import knn
from hma.paper.rivals.late_average import late_average
from hma.paper.rivals.layer_norm import layer_norm
from hma.paper.rivals.manifold_mixup import manifold_mixup
from hma.paper.rivals.released_hma import released_hma
from hma.paper.rivals.simple import cache, forest, prototypes, support_vectors
from hma.paper.rivals.subgraph_encoder import edge_scores
from hma.paper.rivals.table_classifiers import (
    catboost,
    lightgbm,
    real_mlp,
    tabm,
    xgboost,
    xrfm,
)

__all__ = [
    "asap",
    "batchformer",
    "cache",
    "catboost",
    "ciga",
    "dir_",
    "drop_edge",
    "drop_node",
    "edge_scores",
    "forest",
    "g_mixup",
    "ib_irm",
    "irm",
    "knn",
    "late_average",
    "layer_norm",
    "lightgbm",
    "manifold_mixup",
    "npt",
    "prototypes",
    "random_environments",
    "real_mlp",
    "released_hma",
    "subgraph",
    "support_vectors",
    "tabm",
    "vrex",
    "xgboost",
    "xrfm",
]
