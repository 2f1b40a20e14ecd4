"""DropNode: every epoch sees the graphs without some of their nodes."""

from typing import final

from hma.data.draws import Words
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
    return changing(DropNode, method, share)
