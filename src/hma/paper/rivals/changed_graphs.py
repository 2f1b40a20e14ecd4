"""DropEdge, DropNode and Subgraph: training graphs that are other graphs in every epoch."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Literal, final, get_args

import numpy as np
import torch
from torch import Tensor

from hma.checks import expect_number
from hma.data import Batch, Split, Task
from hma.data.draws import Words, mixed, numbers_of, words_of
from hma.data.graph.store import GraphBatch, with_edges, with_nodes
from hma.errors import UserError, wrong_choice
from hma.methods.learner import Learner, Method
from hma.options.config import SHARE
from hma.paper.rivals.wrapping import WrappedLearner, WrappedModule

Change = Callable[[GraphBatch, Words], GraphBatch]
"""Makes changed graphs of a batch and of 64 random bits for each of its graphs."""


class ChangedGraphs:
    """A split whose graphs are changed in training, as place, seed and epoch say.

    Args:
        split: The graphs.
        change: What becomes of a batch.
        seed: Decides the changes.
        name: Of the change: two changes of one graph draw other numbers.
    """

    augment = True

    def __init__(self, split: Split, change: Change, seed: int, name: str) -> None:
        self.split = split
        self.labels = split.labels
        self.change = change
        self.seed = seed
        self.turn: int = split.turn + 1 if isinstance(split, ChangedGraphs) else 0
        self.salt = np.uint64(zlib.crc32(f"{name} {self.turn}".encode()))

    def __len__(self) -> int:
        return len(self.split)

    def batch(self, places: Tensor, epoch: int | None = None) -> Batch:
        """Return the graphs at ``places``; with ``epoch`` changed, as training sees them then."""
        batch = self.split.batch(places, epoch)
        if epoch is None:
            return batch
        words = mixed(words_of(places, self.seed, epoch) ^ self.salt)
        return batch._replace(x=self.change(batch.x, words))


class GraphChanging(WrappedLearner, ABC):
    """Train the inner learner on changed graphs; a subclass says what is taken out of them.

    Args:
        inner: Learner to wrap.
        share: How much is taken out; 0 changes nothing.
        more: What else the change depends on, as a run's identity has it.
    """

    def __init__(self, inner: Learner, share: float, more: str = "") -> None:
        self.share = share
        settings = f"{type(self).__name__}, share={share}{more}"
        super().__init__(inner, WrappedModule(inner.module, settings))

    @abstractmethod
    def change(self, graphs: GraphBatch, words: Words) -> GraphBatch:
        """Return the graphs as an epoch sees them.

        Args:
            graphs: The graphs.
            words: 64 random bits for each of them.
        """

    def training_split(self, train: Split, seed: int) -> Split:
        """Return the graphs that the inner learner trains on, changed from epoch to epoch."""
        split = super().training_split(train, seed)
        if not self.share:
            return split
        return ChangedGraphs(split, self.change, seed, type(self).__name__)


def change_graphs(
    kind: Callable[[Learner, float], Learner], method: Method, share: float
) -> Method:
    """Return ``method`` trained on changed graphs, or say what does not fit."""
    expect_number("share", share, SHARE)

    def build(task: Task, seed: int) -> Learner:
        expect_graphs(task)
        return kind(method(task, seed), share)

    return build


def expect_graphs(task: Task) -> None:
    """Raise unless the rows of a task are graphs."""
    if task.kind != "graph":
        raise UserError(
            f"the rows of {task.name!r} must be graphs to change or mix them, got {task.kind}; "
            "use the method inside by itself, or manifold_mixup"
        )


def numbers_of_nodes(graphs: GraphBatch, words: Words) -> Tensor:
    """Return a number from 0 to 1 for each node, decided by its graph and its place in it."""
    graph = graphs.batch.numpy()
    within = np.arange(len(graph)) - graphs.ptr.numpy()[graph]  # (N,)
    return numbers_of(mixed(words[graph] + within.astype(np.uint64)))


def numbers_of_edges(graphs: GraphBatch, words: Words) -> Tensor:
    """Return a number from 0 to 1 for each edge, the same for both directions."""
    source, target = graphs.edge_index.numpy()
    graph = graphs.batch.numpy()[source]  # (E,)
    first = graphs.ptr.numpy()[graph]
    low, high = np.minimum(source, target) - first, np.maximum(source, target) - first
    return numbers_of(mixed(mixed(words[graph] + low.astype(np.uint64)) + high.astype(np.uint64)))


def left_over(graphs: GraphBatch, share: float) -> Tensor:
    """Return how many nodes each graph keeps without ``floor(share * nodes)`` of them, ``(B,)``.

    With a share below 1 that is at least one of every graph that has any.
    """
    nodes: Tensor = graphs.ptr.diff()  # (B,)
    lost = (share * nodes.double()).floor().long()
    return nodes - lost


def smallest_in_each(graphs: GraphBatch, values: Tensor, count: Tensor) -> Tensor:
    """Mark so many nodes of each graph, those with the smallest values, ``(N,)``.

    Args:
        graphs: The graphs.
        values: What their nodes are ordered by, ``(N,)``; equal ones by their place.
        count: How many of each graph, ``(B,)``.
    """
    graph = graphs.batch.numpy()
    order = np.lexsort((values.numpy(), graph))  # by graph, then by value
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - graphs.ptr.numpy()[graph]
    return torch.from_numpy(rank < count.numpy()[graph])


Degrees = Literal["renewed", "kept"]
"""Node features that are degrees: counted again without the edges, or those of the whole graph."""


@final
class DropEdge(GraphChanging):
    """Each undirected edge is left out with the same chance, both directions together."""

    def __init__(self, inner: Learner, share: float, degrees: Degrees) -> None:
        self.degrees = degrees
        super().__init__(inner, share, "" if degrees == "renewed" else f", degrees={degrees}")

    def change(self, graphs: GraphBatch, words: Words) -> GraphBatch:
        """Return the graphs with the edges whose number is high enough."""
        changed = with_edges(graphs, numbers_of_edges(graphs, words) >= self.share)
        if self.degrees == "kept":
            changed.x = graphs.x
        return changed


def drop_edge(method: Method, *, share: float = 0.2, degrees: Degrees = "renewed") -> Method:
    """Return ``method`` trained on graphs that lose edges, others in every epoch.

    Args:
        method: Method to wrap, such as ``erm(backbone)`` or ``with_memory(backbone, config)``.
        share: Chance of each edge to be left out.
        degrees: Where node features are degrees: ``"renewed"`` counts them again, so that what is
            left out is not told; ``"kept"`` leaves those of the whole graph.
    """
    if degrees not in get_args(Degrees):
        raise UserError(wrong_choice("degrees", degrees, get_args(Degrees)))
    return change_graphs(partial(DropEdge, degrees=degrees), method, share)


@final
class DropNode(GraphChanging):
    """A share of the nodes of each graph, rounded down, is left out with all their edges."""

    def change(self, graphs: GraphBatch, words: Words) -> GraphBatch:
        """Return the graphs with the nodes whose numbers are the smallest."""
        numbers = numbers_of_nodes(graphs, words)
        return with_nodes(graphs, smallest_in_each(graphs, numbers, left_over(graphs, self.share)))


def drop_node(method: Method, *, share: float = 0.2) -> Method:
    """Return ``method`` trained on graphs that lose nodes, others in every epoch.

    Args:
        method: Method to wrap.
        share: Share of the nodes of each graph to leave out, rounded down to whole nodes.
    """
    return change_graphs(DropNode, method, share)


@final
class Subgraph(GraphChanging):
    """From one node on, a neighbour of those reached is added until the rest is the share.

    Every node beside those reached is as likely to be the next. Other parts of a graph that hangs
    not together are never reached, so they are lost too.
    """

    def change(self, graphs: GraphBatch, words: Words) -> GraphBatch:
        """Return the nodes that are reached first, and the edges between them."""
        when = growth_times(
            graphs, numbers_of_nodes(graphs, words), numbers_of_nodes(graphs, mixed(words))
        )
        early = smallest_in_each(graphs, when, left_over(graphs, self.share))
        return with_nodes(graphs, early & when.isfinite())


def growth_times(graphs: GraphBatch, start: Tensor, waiting: Tensor) -> Tensor:
    r"""Return when a growth from one node of each graph reaches each of its nodes, ``(N,)``.

    .. math:: T(v) = w_v + \min_{u \to v} T(u), \quad w_v \sim \mathrm{Exp}(1)

    A node waits from the moment that a neighbour is reached, and waiting has no memory: so of all
    nodes beside those reached each is as likely to be the next, without growing node by node.

    Args:
        graphs: The graphs.
        start: Numbers of the nodes; the smallest of each graph is where it begins, at 0.
        waiting: Numbers from 0 to 1 that decide how long each waits.
    """
    source, target = graphs.edge_index.numpy()
    order = target.argsort(kind="stable")
    source, target = source[order], target[order]  # (E,) each, all edges into a node together
    firsts = np.flatnonzero(np.diff(target, prepend=-1))
    entered = target[firsts]  # nodes that an edge leads to
    waits = -np.log1p(-waiting.numpy())[entered]
    begins = smallest_in_each(graphs, start, torch.ones_like(graphs.ptr[1:]))
    times = np.where(begins.numpy(), 0.0, np.inf)
    later = len(firsts) > 0
    while later:
        through = np.minimum.reduceat(times[source], firsts) + waits
        later = bool((through < times[entered]).any())
        times[entered] = np.minimum(times[entered], through)
    return torch.from_numpy(times)


def subgraph(method: Method, *, share: float = 0.2) -> Method:
    """Return ``method`` trained on subgraphs that hang together, others in every epoch.

    Args:
        method: Method to wrap.
        share: Share of the nodes of each graph to leave out, rounded down to whole nodes.
    """
    return change_graphs(Subgraph, method, share)
