"""Graphs laid end to end, so that a batch is cut with a few index operations and never collated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from hma.data.task import Batch
from hma.errors import UserError
from hma.extras import needed

GraphBatch = Any
"""A ``torch_geometric.data.Batch``; PyG carries no types."""
Graph = Any
"""A ``torch_geometric.data.Data``."""
Cut = dict[str, Any]
"""What a batch holds, by key."""


@dataclass(frozen=True)
class DegreeFeatures:
    """The first columns of the node features: the number of edges that leave a node.

    A batch carries it beside its features, so that they can be made again when edges change.

    Args:
        width: Width of the one-hot degree; its last column stands for all larger ones too. 0 where
            the degree is standardised.
        moments: Mean and deviation that standardise it, where it is not one-hot.

    Example:
        >>> DegreeFeatures(width=3).of(torch.tensor([0, 7]))
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
    """

    width: int = 0
    moments: tuple[float, float] = (0.0, 1.0)

    @property
    def columns(self) -> int:
        """How many columns of the features are the degree's."""
        return self.width or 1

    def codes(self, degrees: Tensor) -> Tensor:
        """Return the column of each node's 1 in the one-hot degree, ``(N,)``."""
        return degrees.clamp(max=self.width - 1)

    def of(self, degrees: Tensor) -> Tensor:
        """Return the features of nodes with these degrees, ``(N,)`` to ``(N, columns)``."""
        if self.width:
            empty = torch.zeros(len(degrees), self.width, device=degrees.device)
            return empty.scatter_(1, self.codes(degrees)[:, None], 1.0)
        mean, deviation = self.moments
        return ((degrees.double() - mean) / deviation).float()[:, None]

    def renew(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return node features ``(N, F)`` with the degrees of these edges; the rest stays."""
        degrees = torch.bincount(edge_index[0], minlength=len(x))
        rest = x[:, self.columns :]  # (N, F - columns)
        return torch.cat([self.of(degrees), rest], dim=1) if rest.shape[1] else self.of(degrees)


class Packed:
    """What all graphs have under one key, laid end to end.

    Args:
        whole: ``(n, ...)``, or ``(rows, n)`` where the graphs stand beside each other.
        counts: How many of the ``n`` each graph has, ``(G,)``.
        beside: Whether they stand beside each other, as the ends of edges do.
        step: How much later graphs of a batch count on for each graph before them, ``(G,)``:
            its nodes for numbers of nodes; None for values that stay as they are.
    """

    def __init__(
        self, whole: Tensor, counts: Tensor, *, beside: bool = False, step: Tensor | None = None
    ) -> None:
        self.counts = counts
        self.step = step
        self.rows = len(whole) if beside else 0
        self.none = whole[:, :0] if beside else whole[:0]
        sizes = counts.tolist()
        # views into the whole, one for each graph: laying views end to end copies whole stretches
        parts = whole.unbind() if beside else [whole]
        self.views = [torch.split(part.contiguous(), sizes) for part in parts]

    def cut(self, places: list[int], graphs: Tensor) -> Tensor:
        """Return what the graphs at ``places``, the same as ``graphs``, have."""
        if not places:
            return self.none
        joined = torch.cat([views[place] for views in self.views for place in places])
        if self.rows:
            joined = joined.view(self.rows, -1)  # (rows * n,) -> (rows, n)
        if self.step is not None:
            before = starts_of(self.step[graphs])[:-1]
            shift = torch.repeat_interleave(before, self.counts[graphs])  # (n,)
            joined = joined + (shift if self.rows else shift.view(-1, *[1] * (joined.dim() - 1)))
        return joined


class GraphStore:
    """All graphs of a data set under every key they have, collated once.

    Args:
        nodes: Number of nodes of each graph, ``(G,)``.
        keys: What they have, by key.
        finish: Makes what a batch holds of what was cut, such as features of codes.
        lists: What is no tensor, such as a name: one for each graph, by key.
        degree_features: What node features made of degrees are, where there are any; every batch
            carries it under this name.
    """

    def __init__(
        self,
        nodes: Tensor,
        keys: Mapping[str, Packed],
        *,
        finish: Callable[[Cut], Cut] = lambda cut: cut,
        lists: Mapping[str, Sequence[Any]] | None = None,
        degree_features: DegreeFeatures | None = None,
    ) -> None:
        self.nodes = nodes
        self.keys = keys
        self.finish = finish
        self.lists = lists or {}
        self.carried = {} if degree_features is None else {"degree_features": degree_features}

    @classmethod
    def of(cls, graphs: Iterable[Graph]) -> "GraphStore":
        """Collate graphs of PyG, such as a data set of its own: every key of theirs is kept."""
        graphs = list(graphs)
        if not graphs:
            raise UserError("graphs must hold at least one graph, got none")
        names = sorted(set(graphs[0].keys()) - {"num_nodes"})
        for place, graph in enumerate(graphs):
            if sorted(set(graph.keys()) - {"num_nodes"}) != names:
                raise UserError(
                    f"graphs must all have the keys {', '.join(names)}, got "
                    f"{', '.join(sorted(graph.keys()))} in graph {place}"
                )
        nodes = torch.tensor([graph.num_nodes or 0 for graph in graphs])
        keys, lists = {}, {}
        for name in names:
            values = [graph[name] for graph in graphs]
            if isinstance(values[0], bool | int | float):
                values = [torch.tensor([value]) for value in values]
            if isinstance(values[0], Tensor):
                keys[name] = _pack(name, graphs, values)
            else:
                lists[name] = values
        return cls(nodes, keys, lists=lists)

    def cut(self, graphs: Tensor) -> GraphBatch:
        """Return the graphs ``(B,)``, in that order, as one PyG batch."""
        places = graphs.tolist()
        nodes = self.nodes[graphs]
        parts: Cut = {name: laid.cut(places, graphs) for name, laid in self.keys.items()}
        parts |= {name: [values[place] for place in places] for name, values in self.lists.items()}
        batch = copy(_empty_batch())  # most of the cost of a small batch would be making it anew
        batch.update(
            {
                **self.finish(parts),
                **self.carried,
                "batch": torch.repeat_interleave(nodes),  # (n,)
                "ptr": starts_of(nodes),
            }
        )
        return batch


class Graphs:
    """A split of graphs, cut out of a store that several splits share.

    Args:
        store: All graphs.
        rows: Which of them belong to the split, ``(N,)``.
        labels: Class ids ``(N,)``, or what else the target takes.
    """

    def __init__(self, store: GraphStore, rows: Tensor, labels: Tensor) -> None:
        self.store = store
        self.rows = rows
        self.labels = labels

    @classmethod
    def of(cls, graphs: Iterable[Graph]) -> "Graphs":
        """Return all graphs of a PyG data set; the labels are their ``y``.

        Example:
            >>> Data = needed("torch_geometric.data", "the example", extra="graph").Data
            >>> edge = torch.tensor([[0, 1], [1, 0]])
            >>> pair = Data(x=torch.ones(2, 3), edge_index=edge, edge_attr=edge.T, y=1)
            >>> batch = Graphs.of([pair, pair]).batch(torch.tensor([1, 0]))
            >>> batch.y, batch.x.edge_attr.shape
            (tensor([1, 1]), torch.Size([4, 2]))
        """
        store = GraphStore.of(graphs)
        if "y" not in store.keys:
            raise UserError("graphs must have labels y, one row for each graph")
        everything = torch.arange(len(store.nodes))
        labels = store.keys["y"].cut(everything.tolist(), everything)
        if len(labels) != len(everything):
            raise UserError(f"y must have one row for each graph, got {tuple(labels.shape)}")
        return cls(store, everything, labels)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the graphs at ``places``; ``x`` is a PyG batch."""
        return Batch(self.store.cut(self.rows[places]), self.labels[places], places)


def _pack(name: str, graphs: Sequence[Graph], values: list[Tensor]) -> Packed:
    """Lay what PyG's graphs have under a key as PyG itself would collate it."""
    values = [value[None] if value.dim() == 0 else value for value in values]
    axis = graphs[0].__cat_dim__(name, values[0])
    if axis is None:
        values, axis = [value[None] for value in values], 0
    beside = axis % values[0].dim() > 0
    if beside and (values[0].dim() != 2 or axis % 2 != 1):
        raise UserError(f"key {name!r} stands beside in more than two axes, got axis {axis}")
    counts = torch.tensor([value.shape[axis] for value in values])
    steps = [graph.__inc__(name, value) for graph, value in zip(graphs, values, strict=True)]
    if not all(isinstance(step, int) for step in steps):
        raise UserError(f"key {name!r} counts on by {steps[0]}; only whole numbers can be laid")
    step = torch.tensor(steps) if any(steps) else None
    return Packed(torch.cat(values, dim=axis), counts, beside=beside, step=step)


def starts_of(counts: Tensor) -> Tensor:
    """Return where each of several ranges begins and the last ends, ``(G + 1,)``."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(dim=0)])


@cache
def _empty_batch() -> GraphBatch:
    return needed("torch_geometric.data", "graphs", extra="graph").Batch()


def with_edges(graphs: GraphBatch, kept: Tensor) -> GraphBatch:
    """Return the graphs without the edges that ``kept`` ``(E,)`` does not mark.

    Everything that edges have goes with them. Node features that are degrees
    (:class:`hma.data.graph.store.DegreeFeatures`) are those of the edges that are left.
    """
    changed = copy(graphs)
    for key in _keys(graphs, "edge"):
        changed[key] = _take_edges(graphs, key, kept)
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
        changed[key] = _take_edges(graphs, key, edges)
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
    """Return ranges that begin at ``starts`` and have ``counts`` numbers, end to end."""
    shift = starts - starts_of(counts)[:-1]
    return torch.repeat_interleave(shift, counts) + torch.arange(int(counts.sum()))


def _keys(graphs: GraphBatch, level: Literal["node", "edge"]) -> list[str]:
    """Return the keys that have a value for each node, or each edge; told by size, as in PyG.

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


def _take_edges(graphs: GraphBatch, key: str, kept: Tensor) -> Tensor:
    """Return the values of the remaining edges under a key."""
    value: Tensor = graphs[key]
    return value[:, kept] if key == "edge_index" else value[kept]


def _with_degrees(graphs: GraphBatch) -> GraphBatch:
    """Recount the degrees of changed graphs if their features are degrees."""
    features = getattr(graphs, "degree_features", None)
    if isinstance(features, DegreeFeatures):
        graphs.x = features.renew(graphs.x, graphs.edge_index)
    return graphs
