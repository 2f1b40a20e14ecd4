"""DropEdge: every epoch sees the graphs without some of their edges."""

from typing import final

from hma.data.draws import Words
from hma.data.graph.store import GraphBatch
from hma.data.graph.surgery import with_edges
from hma.methods.augmentation.changed_graphs import GraphChanging, changing, numbers_of_edges
from hma.methods.learner import Method


@final
class DropEdge(GraphChanging):
    """Each undirected edge is left out with the same chance, both directions together."""

    def change(self, graphs: GraphBatch, words: Words) -> GraphBatch:
        """Return the graphs with the edges whose number is high enough."""
        return with_edges(graphs, numbers_of_edges(graphs, words) >= self.share)


def drop_edge(method: Method, *, share: float = 0.2) -> Method:
    """Return ``method`` trained on graphs that lose edges, others in every epoch.

    Args:
        method: Method to wrap, such as ``erm(backbone)`` or ``with_hma(backbone, config)``.
        share: Chance of each edge to be left out.
    """
    return changing(DropEdge, method, share)
