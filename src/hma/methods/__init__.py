"""Rows of the tables: functions from a task and a seed to a learner."""

from hma.methods.augmentation import drop_edge, drop_node, g_mixup, manifold_mixup, subgraph
from hma.methods.batchformer import batchformer
from hma.methods.erm import erm
from hma.methods.invariance import ib_irm, irm, random_environments, vrex
from hma.methods.layer_norm import layer_norm
from hma.methods.learner import Learner, Method, OutputModule
from hma.methods.memory import with_memory
from hma.methods.nearest import knn
from hma.methods.npt import npt
from hma.methods.subgraphs import asap, ciga, dir_, edge_scores
from hma.model import Output

__all__ = [
    "Learner",
    "Method",
    "Output",
    "OutputModule",
    "asap",
    "batchformer",
    "ciga",
    "dir_",
    "drop_edge",
    "drop_node",
    "edge_scores",
    "erm",
    "g_mixup",
    "ib_irm",
    "irm",
    "knn",
    "layer_norm",
    "manifold_mixup",
    "npt",
    "random_environments",
    "subgraph",
    "vrex",
    "with_memory",
]
