"""Graphs cut in two by scores of their edges: the highest of each graph, and the rest."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hma.backbones.gnn.encoder import graphs_of
from hma.data.graph.store import starts_of
from hma.errors import UserError
from hma.extras import needed

ROUNDING = 1e-9
"""A share of edges that is whole but for this much is whole: 0.07 * 100 is above 7."""


def expect_share(share: float) -> None:
    """Raise unless ``share`` is a share of edges that can be kept."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UserError(
            f"share must be above 0 and at most 1, the share of edges kept of each graph, got "
            f"{share!r}"
        )


class Ranked(NamedTuple):
    """Edges by score, each among those of its own graph.

    Shape:
        - ``rank`` ``(E,)``: how many edges of its graph are before an edge.
        - ``counts`` ``(B,)``: edges of each graph.
    """

    rank: Tensor
    counts: Tensor


def ranked(scores: Tensor, graph_of: Tensor, graphs: int) -> Ranked:
    """Order the edges of each graph by score, the highest first; of equal scores the first is.

    Args:
        scores: Of each edge, ``(E,)``.
        graph_of: Graph of each edge, ``(E,)``, in any order.
        graphs: How many graphs there are; some may have no edges.

    Example:
        >>> ranked(torch.tensor([0.1, 0.9, 0.5, -3.0]), torch.tensor([0, 0, 0, 1]), 2).rank
        tensor([2, 0, 1, 0])
    """
    by_score = scores.detach().argsort(descending=True, stable=True)
    order = by_score[graph_of[by_score].argsort(stable=True)]  # by graph, then by score
    counts = torch.zeros(graphs, dtype=torch.long, device=scores.device)
    counts = counts.index_add(0, graph_of, torch.ones_like(graph_of))
    rank = torch.arange(len(order), device=scores.device) - starts_of(counts)[graph_of[order]]
    return Ranked(torch.empty_like(rank).scatter(0, order, rank), counts)


def highest(scores: Tensor, graph_of: Tensor, graphs: int, share: float) -> Tensor:
    r"""Mark the :math:`\lceil r E_g \rceil` edges with the highest scores of each graph, ``(E,)``.

    Args:
        scores, graph_of, graphs: As for :func:`ranked`.
        share: :math:`r`, above 0 and at most 1.

    Example:
        >>> graph_of = torch.tensor([0, 0, 0, 1])
        >>> highest(torch.tensor([0.1, 0.9, 0.5, -3.0]), graph_of, 2, share=0.5)
        tensor([False,  True,  True,  True])
    """
    rank, counts = ranked(scores, graph_of, graphs)
    wanted = (share * counts.double() - ROUNDING).ceil()  # (B,)
    return rank < wanted[graph_of]


def cut_out(batch: Any, nodes: Tensor, edges: Tensor, weight: Tensor, *, edgeless: bool) -> Any:
    """Return the part of a PyG batch that some of its edges span, as a batch of as many graphs.

    A node that none of these edges touches is left out.

    Args:
        batch: The graphs.
        nodes: Features of all their nodes, ``(N, W)``.
        edges: Which edges, ``(E,)`` of bool.
        weight: What a message along each edge is multiplied with, ``(E,)``; an edge that has a
            weight already gets the product.
        edgeless: Whether a graph without any edge is its own part; else nothing of it is.
    """
    graph_of, graphs = graphs_of(batch)
    ends = batch.edge_index[:, edges]  # (2, E) -> (2, K)
    inside = torch.zeros(len(nodes), dtype=torch.bool, device=nodes.device)
    inside = inside.index_fill(0, ends.flatten(), True)
    if edgeless:
        joined = torch.zeros(graphs, dtype=torch.bool, device=nodes.device)
        joined = joined.index_fill(0, graph_of[batch.edge_index[0]], True)
        inside = inside | ~joined[graph_of]
    number = inside.long().cumsum(0) - 1  # of each node that is inside
    kept = graph_of[inside]
    known = getattr(batch, "edge_weight", None)
    counts = torch.zeros(graphs, dtype=torch.long, device=nodes.device)
    parts = {
        "x": nodes[inside],
        "edge_index": number[ends],
        "edge_weight": (weight if known is None else weight * known)[edges],
        "batch": kept,
        "ptr": starts_of(counts.index_add(0, kept, torch.ones_like(kept))),
    }
    if getattr(batch, "edge_attr", None) is not None:
        parts["edge_attr"] = batch.edge_attr[edges]
    return needed("torch_geometric.data", "graphs", extra="graph").Batch(**parts)
