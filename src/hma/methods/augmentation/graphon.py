"""Graphons: chances of an edge between nodes by their rank, estimated from graphs and drawn from.

By universal singular value thresholding (Chatterjee, *Matrix estimation by universal singular value
thresholding*, Annals of Statistics 43, 2015) of the mean adjacency of degree-sorted graphs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hma.data.graph.store import starts_of

THRESHOLD = 0.2
"""Singular values below this times the root of the resolution are left out."""


class LaidGraphs(NamedTuple):
    """Graphs laid end to end.

    Shape:
        - ``nodes``, ``edges``: how many each graph has, ``(G,)``.
        - ``edge_index``: ``(2, E)``, node numbers inside their own graph, both directions.
    """

    nodes: Tensor
    edges: Tensor
    edge_index: Tensor


def class_graphons(graphs: LaidGraphs, labels: Tensor) -> dict[int, Tensor]:
    """Return the graphon of each class, as fine as the median graph is large, ``(R, R)`` each.

    Args:
        graphs: The graphs.
        labels: Their class ids ``(G,)``.
    """
    resolution = max(int(graphs.nodes.double().quantile(0.5)), 1)
    ranks = ranks_by_degree(graphs)
    return {
        label: graphon(mean_adjacency(graphs, ranks, labels == label, resolution))
        for label in torch.unique(labels).tolist()
    }


def ranks_by_degree(graphs: LaidGraphs) -> Tensor:
    """Return the ends of each edge by their rank among the nodes of their graph, ``(2, E)``.

    The node with most edges has rank 0; nodes of equal degree stay in their order.
    """
    starts = starts_of(graphs.nodes)
    graph_of = torch.repeat_interleave(graphs.nodes)  # (N,)
    ends = graphs.edge_index + torch.repeat_interleave(starts[:-1], graphs.edges)  # (2, E)
    degree = torch.bincount(ends.flatten(), minlength=len(graph_of))  # (N,), in and out
    by_degree = degree.argsort(descending=True, stable=True)
    order = by_degree[graph_of[by_degree].argsort(stable=True)]  # by graph, then by degree
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - starts[graph_of]
    return rank[ends]


def mean_adjacency(graphs: LaidGraphs, ranks: Tensor, chosen: Tensor, resolution: int) -> Tensor:
    """Return the mean adjacency of some graphs with their nodes by rank, ``(R, R)``.

    Of a larger graph the first ``resolution`` nodes count; a smaller one is filled up with nodes
    without edges.

    Args:
        graphs: The graphs.
        ranks: Ends of their edges by rank, ``(2, E)``.
        chosen: Which graphs, ``(G,)`` of bool, one at least.
        resolution: Rows and columns, ``R``.
    """
    rows, columns = ranks
    counted = torch.repeat_interleave(chosen, graphs.edges) & (ranks < resolution).all(dim=0)
    cells = (rows * resolution + columns)[counted]
    counts = torch.bincount(cells, minlength=resolution**2).view(resolution, resolution)
    mean: Tensor = counts.double() / chosen.sum()
    return mean


def graphon(mean: Tensor, threshold: float = THRESHOLD) -> Tensor:
    """Return chances of an edge, ``(R, R)``: ``mean`` of its large singular values alone.

    Args:
        mean: Mean adjacency of graphs.
        threshold: Singular values below ``threshold * sqrt(R)`` count as noise.
    """
    left, values, right = torch.linalg.svd(mean)
    values = values.where(values >= threshold * len(mean) ** 0.5, 0.0)
    chances: Tensor = (left * values @ right).clamp(0.0, 1.0)
    return chances


def drawn(chances: Tensor, count: int, generator: torch.Generator) -> LaidGraphs:
    """Draw undirected graphs without loops; nodes that have no edge are left out.

    A graph without any edge keeps one node.

    Args:
        chances: Of an edge between two nodes, ``(R, R)``; what is above the diagonal counts.
        count: How many graphs.
        generator: Decides them.
    """
    size = len(chances)
    dice = torch.rand(count, size, size, generator=generator, dtype=chances.dtype)
    upper = (dice < chances).triu(diagonal=1)  # (count, R, R)
    joined = upper | upper.transpose(1, 2)
    used = joined.any(dim=2)  # (count, R)
    used[:, 0] |= ~used.any(dim=1)
    number = used.cumsum(dim=1) - 1
    graph, source, target = joined.nonzero(as_tuple=True)  # (E,) each, graph by graph
    return LaidGraphs(
        nodes=used.sum(dim=1),
        edges=torch.bincount(graph, minlength=count),
        edge_index=torch.stack([number[graph, source], number[graph, target]]),
    )


def together(parts: Sequence[LaidGraphs]) -> LaidGraphs:
    """Lay several lots of graphs end to end."""
    nodes, edges, edge_index = zip(*parts, strict=True)
    return LaidGraphs(torch.cat(nodes), torch.cat(edges), torch.cat(edge_index, dim=1))
