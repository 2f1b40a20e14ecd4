"""DropEdge: every epoch sees the graphs without some of their edges."""

from functools import partial
from typing import Literal, final, get_args

from hma.data.draws import Words
from hma.data.graph.store import GraphBatch, with_edges
from hma.errors import UserError, wrong_choice
from hma.methods.augmentation.changed_graphs import GraphChanging, changing, numbers_of_edges
from hma.methods.learner import Learner, Method

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
    return changing(partial(DropEdge, degrees=degrees), method, share)
