"""Batches of graphs with nodes or edges taken out, or put together; degrees are counted again."""

from copy import copy
from typing import Literal

import torch
from torch import Tensor

from hma.data.graph.degrees import DegreeFeatures
from hma.data.graph.store import GraphBatch, starts_of
from hma.errors import UserError


def with_edges(graphs: GraphBatch, kept: Tensor) -> GraphBatch:
    """Return the graphs without the edges that ``kept`` ``(E,)`` does not mark.

    Everything that edges have goes with them. Node features that are degrees
    (:class:`hma.data.graph.degrees.DegreeFeatures`) are those of the edges that are left.
    """
    changed = copy(graphs)
    for key in _keys(graphs, "edge"):
        changed[key] = _taken(graphs, key, kept)
    return _with_degrees(changed)


def with_nodes(graphs: GraphBatch, kept: Tensor) -> GraphBatch:
    """Return the graphs without the nodes that ``kept`` ``(N,)`` does not mark, nor their edges.

    The nodes that are left are numbered on without gaps, in their order.
    """
    source, target = graphs.edge_index
    edges = kept[source] & kept[target]  # (E,)
    number = kept.cumsum(0) - 1  # (N,)
    changed = copy(graphs)
    for key in _keys(graphs, "edge"):
        changed[key] = _taken(graphs, key, edges)
    for key in _keys(graphs, "node"):
        changed[key] = graphs[key][kept]
    changed.edge_index = number[changed.edge_index]
    changed.ptr = starts_of(torch.bincount(changed.batch, minlength=len(graphs.ptr) - 1))
    return _with_degrees(changed)


def joined(first: GraphBatch, second: GraphBatch, order: Tensor) -> GraphBatch:
    """Return the graphs of both in another order; all features are made of degrees.

    Args:
        first: Graphs whose features are degrees alone; what else they have is left out.
        second: Graphs with ``edge_index``.
        order: Places of the graphs, those of ``second`` counted on after ``first``, ``(B,)``.
    """
    nodes = torch.cat([first.ptr.diff(), second.ptr.diff()])  # (B,)
    edge_index = torch.cat([first.edge_index, second.edge_index + first.ptr[-1]], dim=1)
    graph_of = torch.repeat_interleave(nodes)  # (N,)
    edges = torch.bincount(graph_of[edge_index[0]], minlength=len(nodes))  # (B,)
    before, ptr = starts_of(nodes), starts_of(nodes[order])
    moved = torch.repeat_interleave(ptr[:-1] - before[order], edges[order])  # (E,)
    placed = _stretches(starts_of(edges)[order], edges[order])  # (E,)
    result = type(first)()
    features: DegreeFeatures = first.degree_features
    count = int(nodes.sum())
    result.update(
        {
            "edge_index": edge_index[:, placed] + moved,
            "batch": torch.repeat_interleave(nodes[order]),
            "ptr": ptr,
            "x": first.x.new_empty(count, features.columns),
            "degree_features": features,
        }
    )
    return _with_degrees(result)


def _stretches(starts: Tensor, counts: Tensor) -> Tensor:
    """Return whole numbers from each start on, so many each, end to end."""
    shift = starts - starts_of(counts)[:-1]
    return torch.repeat_interleave(shift, counts) + torch.arange(int(counts.sum()))


def _keys(graphs: GraphBatch, level: Literal["node", "edge"]) -> list[str]:
    """Return the keys under which each node, or each edge, has something; by size, as in PyG.

    Where there are as many nodes as edges, what has "edge" in its name is the edges'.
    """
    nodes, edges = len(graphs.batch), graphs.edge_index.shape[1]
    size = nodes if level == "node" else edges
    found = []
    for key, value in graphs.to_dict().items():
        if not isinstance(value, Tensor) or not value.dim() or key in ("ptr", "y"):
            continue
        if key != "edge_index" and ("index" in key or key == "face"):
            raise UserError(
                "graphs must number nodes in edge_index alone where parts are taken out, got "
                f"{key!r}; leave it out of the graphs"
            )
        fits = value.shape[graphs.__cat_dim__(key, value)] == size
        if fits and (nodes != edges or ("edge" in key) == (level == "edge")):
            found.append(key)
    return found


def _taken(graphs: GraphBatch, key: str, kept: Tensor) -> Tensor:
    """Return what the edges that are kept have under a key."""
    value: Tensor = graphs[key]
    return value[:, kept] if key == "edge_index" else value[kept]


def _with_degrees(graphs: GraphBatch) -> GraphBatch:
    """Count the degrees of changed graphs again, where their features are degrees."""
    features = getattr(graphs, "degree_features", None)
    if isinstance(features, DegreeFeatures):
        graphs.x = features.renewed(graphs.x, graphs.edge_index)
    return graphs
