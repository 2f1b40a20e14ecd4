"""Methods that predict from a part of each graph: ASAP, CIGA and DIR."""

from hma.methods.subgraphs.asap import asap
from hma.methods.subgraphs.ciga import ciga
from hma.methods.subgraphs.dir import dir_
from hma.methods.subgraphs.edge_scores import edge_scores

__all__ = ["asap", "ciga", "dir_", "edge_scores"]
