"""Graphs laid end to end, so that a batch is cut with a few index operations and never collated."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from hma.data.task import Batch
from hma.extras import needed

GraphBatch = Any
"""A ``torch_geometric.data.Batch``; PyG carries no types."""


class GraphStore:
    """Graphs and their node features, collated once.

    A node's features are rows of ``table``, summed over its ``codes``, then its ``values``;
    one-hot features so cost one number per node.

    Args:
        nodes_before, edges_before: Where each graph begins, ``(G + 1,)``.
        edges: Node numbers inside their own graph, ``(2, E)``.
        codes: Rows of ``table`` for each node, ``(N, K)``.
        table: ``(rows, width)``.
        values: Numbers of each node, ``(N, A)``.
    """

    def __init__(
        self,
        nodes_before: Tensor,
        edges_before: Tensor,
        edges: Tensor,
        *,
        codes: Tensor,
        table: Tensor,
        values: Tensor,
    ) -> None:
        self.nodes, self.edges = nodes_before.diff(), edges_before.diff()
        self.table = table
        self.shapes = codes.shape[1], values.shape[1]
        nodes, edge_counts = self.nodes.tolist(), self.edges.tolist()
        # views into the whole, one for each graph: laying views end to end copies whole stretches
        self.codes = torch.split(codes, nodes)
        self.values = torch.split(values, nodes)
        self.sources = torch.split(edges[0].contiguous(), edge_counts)
        self.targets = torch.split(edges[1].contiguous(), edge_counts)

    def cut(self, graphs: Tensor) -> GraphBatch:
        """Return the graphs ``(B,)``, in that order, as one PyG batch."""
        places = graphs.tolist()
        nodes, edges = self.nodes[graphs], self.edges[graphs]
        ends = [self.sources[place] for place in places] + [self.targets[place] for place in places]
        before = _before(nodes)
        shift = torch.repeat_interleave(before[:-1], edges)  # (e,)
        # type.__call__ leaves out PyG's look at the signature, most of the cost of a small batch
        batch = type.__call__(
            _batch_class(),
            x=self.features(places),
            edge_index=_laid(ends, graphs).view(2, -1) + shift,  # (2e,) -> (2, e)
            batch=torch.repeat_interleave(nodes),  # (n,)
            ptr=before,
        )
        private = batch.__dict__  # what lets PyG take the batch apart again
        private["_num_graphs"] = len(places)
        private["_slice_dict"] = {"x": before, "edge_index": _before(edges)}
        private["_inc_dict"] = {"x": torch.zeros_like(nodes), "edge_index": before[:-1]}
        return batch

    def features(self, places: list[int]) -> Tensor:
        """Return the features of all nodes of some graphs, ``(n, F)``."""
        kinds, numbers = self.shapes
        parts = []
        if kinds:
            codes = _laid([self.codes[place] for place in places], self.codes[0])  # (n, K)
            each = [self.table[column] for column in codes.unbind(dim=1)]
            parts.append(each[0] if len(each) == 1 else torch.stack(each).sum(dim=0))
        if numbers:
            parts.append(_laid([self.values[place] for place in places], self.values[0]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class Graphs:
    """A split of graphs, cut out of a store that several splits share.

    Args:
        store: All graphs.
        rows: Which of them belong to the split, ``(N,)``.
        labels: Class ids ``(N,)``.
    """

    def __init__(self, store: GraphStore, rows: Tensor, labels: Tensor) -> None:
        self.store = store
        self.rows = rows
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the graphs at ``places``; ``x`` is a PyG batch."""
        return Batch(self.store.cut(self.rows[places]), self.labels[places], places)


def _before(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)])


def _laid(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Lay tensors end to end, be there any or none."""
    return torch.cat(list(parts)) if parts else like[:0]


@cache
def _batch_class() -> type:
    """Return the class that PyG gives to a batch of plain graphs."""
    return type(needed("torch_geometric.data", "graphs").Batch())
