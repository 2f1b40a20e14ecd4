"""G-Mixup: graphs drawn between the graphons of two classes.

A graphon gives the chance of an edge between nodes by their rank. It is estimated by universal
singular value thresholding (Chatterjee, *Matrix estimation by universal singular value
thresholding*, Annals of Statistics 43, 2015) of the mean adjacency of degree-sorted graphs.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from hma.checks import expect_whole
from hma.data import Batch, GraphStore, Mixed, Split, Task
from hma.data.graph.store import DegreeFeatures, Packed, joined, starts_of
from hma.errors import UserError
from hma.methods.learner import Learner, Method
from hma.paper.rivals.changed_graphs import expect_graphs
from hma.paper.rivals.manifold_mixup import RowMixing, between
from hma.paper.rivals.wrapping import WrappedModule
from hma.targets import Classes

# ----------------------------------------------------------------------------------------- graphons


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


def draw_graphs(chances: Tensor, count: int, generator: torch.Generator) -> LaidGraphs:
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


def join_graphs(parts: Sequence[LaidGraphs]) -> LaidGraphs:
    """Lay several lots of graphs end to end."""
    nodes, edges, edge_index = zip(*parts, strict=True)
    return LaidGraphs(torch.cat(nodes), torch.cat(edges), torch.cat(edge_index, dim=1))


# --------------------------------------------------------------------------------------- new graphs


AT_ONCE = 128
"""Graphs whose features are made at a time, where all edges are looked at."""


class Settings(NamedTuple):
    """What G-Mixup is asked for.

    Args:
        share: New graphs for each training graph.
        groups: Lots of new graphs; those of one lot are of the same two classes and mixture.
        mixing: Least and most that the first class counts.
    """

    share: float
    groups: int
    mixing: tuple[float, float]


class NewGraphs(NamedTuple):
    """Graphs that were drawn, and their labels ``(K,)``: the first counts ``share``."""

    graphs: LaidGraphs
    first: Tensor
    second: Tensor
    share: Tensor


class WithNewGraphs:
    """A split with graphs of our own after its own graphs, which have two labels each.

    As label of a new graph stands the one that counts more.

    Args:
        split: The real graphs; their features are degrees alone.
        new: The others.
    """

    def __init__(self, split: Split, new: NewGraphs) -> None:
        self.split = split
        nodes, edges, edge_index = new.graphs
        keys = {"edge_index": Packed(edge_index, edges, beside=True, step=nodes)}
        self.store = GraphStore(nodes, keys)
        leading = new.share >= 0.5
        own = torch.where(leading, new.first, new.second).to(split.labels)
        other = torch.where(leading, new.second, new.first).to(split.labels)
        counts = torch.where(leading, new.share, 1 - new.share)
        self.labels = torch.cat([split.labels, own])
        self.other = torch.cat([split.labels, other])
        self.share = torch.cat([torch.ones(len(split)), counts])

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the graphs at ``places``; real ones as the split gives them."""
        real = places < len(self.split)
        batch = self.split.batch(places[real], epoch)
        weight = batch.weight
        if weight is not None:
            weight = weight.new_ones(len(places)).masked_scatter(real, weight)
        if not bool(real.all()):
            new = self.store.cut(places[~real] - len(self.split))
            turn = torch.where(real, real.cumsum(0) - 1, real.sum() + (~real).cumsum(0) - 1)
            batch = batch._replace(x=joined(batch.x, new, turn))
        mixed = Mixed(self.other[places], self.share[places])
        return Batch(batch.x, self.labels[places], places, weight, mixed=mixed)


@final
class GMixup(RowMixing):
    """Train on graphs of the task and on new ones, which no memory keeps.

    Args:
        inner: Learner to wrap.
        task: What from; for messages.
        settings: What is asked for.
    """

    def __init__(self, inner: Learner, task: Task, settings: Settings) -> None:
        self.task_name, self.settings = task.name, settings
        said = ", ".join(f"{name}={value}" for name, value in settings._asdict().items())
        super().__init__(inner, WrappedModule(inner.module, f"GMixup, {said}"))

    def training_split(self, train: Split, seed: int) -> Split:
        """Return the graphs that the inner learner trains on, and new ones after them."""
        split = super().training_split(train, seed)
        if int(len(split) * self.settings.share) == 0:
            return split
        graphs = laid_graphs(split, self.task_name)
        return WithNewGraphs(split, new_graphs(graphs, split.labels, self.settings, seed))


def new_graphs(graphs: LaidGraphs, labels: Tensor, settings: Settings, seed: int) -> NewGraphs:
    """Draw graphs between classes, ``share * graphs`` in equal lots, rounded down.

    Args:
        graphs: The training graphs, of two classes or more.
        labels: Their class ids ``(G,)``.
        settings: How many, and how mixed.
        seed: Decides classes, mixtures and graphs.
    """
    by_class = class_graphons(graphs, labels)
    classes = torch.tensor(list(by_class))
    generator = torch.Generator().manual_seed(seed)
    low, high = settings.mixing
    total = int(len(labels) * settings.share)
    groups = min(settings.groups, total)
    shares = low + (high - low) * torch.rand(groups, generator=generator)
    each = total // groups
    lots, pairs = [], []
    for share in shares.tolist():
        pair = classes[torch.randperm(len(classes), generator=generator)[:2]]
        first, second = (by_class[label] for label in pair.tolist())
        lots.append(draw_graphs(between(first, second, torch.tensor(share)), each, generator))
        pairs.append(pair)
    one, other = torch.stack(pairs).repeat_interleave(each, dim=0).unbind(dim=1)
    return NewGraphs(join_graphs(lots), one, other, shares.repeat_interleave(each))


def laid_graphs(split: Split, name: str) -> LaidGraphs:
    """Return all graphs of a split, or say why none can be drawn that are like them."""
    parts = []
    for places in torch.split(torch.arange(len(split)), AT_ONCE):
        batch = split.batch(places)
        _expect_plain(batch, name)
        graphs = batch.x
        edges = torch.bincount(graphs.batch[graphs.edge_index[0]], minlength=len(places))
        within = graphs.edge_index - torch.repeat_interleave(graphs.ptr[:-1], edges)
        parts.append(LaidGraphs(graphs.ptr.diff(), edges, within))
    if len(torch.unique(split.labels)) < 2:
        raise UserError(f"the training graphs of {name!r} are all of one class; G-Mixup needs two")
    return join_graphs(parts)


def _expect_plain(batch: Batch, name: str) -> None:
    graphs = batch.x
    features = getattr(graphs, "degree_features", None)
    if not isinstance(features, DegreeFeatures) or features.columns != graphs.x.shape[1]:
        raise UserError(
            f"the node features of {name!r} must be degrees alone: G-Mixup draws edges, and nodes "
            "without labels or attributes; use drop_edge, drop_node or subgraph"
        )
    if "edge_attr" in graphs:
        raise UserError(f"the edges of {name!r} must have no features; leave edge_labels out")
    if batch.environment is not None or batch.mixed is not None:
        held = "environments" if batch.mixed is None else "new graphs already"
        raise UserError(
            f"the training rows of {name!r} must be plain graphs for G-Mixup, got some with {held}"
        )


def g_mixup(
    method: Method,
    *,
    share: float = 0.15,
    groups: int = 10,
    mixing: tuple[float, float] = (0.005, 0.01),
) -> Method:
    """Return ``method`` trained on new graphs too, drawn between the graphons of two classes.

    Args:
        method: Method to wrap.
        share: New graphs for each training graph; 0 makes none.
        groups: Lots of new graphs: each has two classes and a mixture of its own.
        mixing: Least and most that the first of the two classes counts, from 0 to 1.
    """
    if not 0 <= share <= 10:
        raise UserError(f"share must be from 0 to 10 new graphs for each, got {share}")
    expect_whole("groups", groups, least=1)
    if len(mixing) != 2 or not 0 <= mixing[0] <= mixing[1] <= 1:
        raise UserError(f"mixing must be two numbers from 0 to 1, the least first, got {mixing}")
    settings = Settings(share, groups, (mixing[0], mixing[1]))

    def build(task: Task, seed: int) -> GMixup:
        expect_graphs(task)
        if not isinstance(task.target, Classes):
            raise UserError(
                f"labels of {task.name!r} must be classes for G-Mixup, got {task.target.kind!r}"
            )
        return GMixup(method(task, seed), task, settings)

    return build
