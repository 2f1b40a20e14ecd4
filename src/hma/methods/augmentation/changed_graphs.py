"""Graphs that lose a part of themselves in training, another one in every epoch."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from hma.data import Batch, Split, Task
from hma.data.draws import Words, mixed, numbers_of, words_of
from hma.data.graph.store import GraphBatch
from hma.errors import UserError
from hma.methods.learner import Learner, Method
from hma.methods.wrapping import WrappedLearner, WrappedModule

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


def changing(kind: Callable[[Learner, float], Learner], method: Method, share: float) -> Method:
    """Return ``method`` trained on changed graphs, or say what does not fit."""
    if not 0 <= share < 1:
        raise UserError(f"share must be at least 0 and below 1, got {share}")

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
