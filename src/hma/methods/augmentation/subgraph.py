"""Subgraph: every epoch sees of each graph what a random growth from one node reaches."""

from typing import final

import numpy as np
import torch
from torch import Tensor

from hma.data.draws import Words, mixed
from hma.data.graph.store import GraphBatch, with_nodes
from hma.methods.augmentation.changed_graphs import (
    GraphChanging,
    changing,
    left_over,
    numbers_of_nodes,
    smallest_in_each,
)
from hma.methods.learner import Method


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
    return changing(Subgraph, method, share)
