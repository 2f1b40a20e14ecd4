"""What every source of graphs has: all of them laid end to end."""

import torch
from torch import Tensor

from hma.data.source import Source

Sizes = tuple[int, ...]


class GraphSource(Source):
    """Graphs, whole in memory, laid end to end; a subclass sets what is listed here.

    Shape:
        - ``nodes_before``, ``edges_before``: ``(G + 1,)``, where each graph begins.
        - ``edges``: ``(2, E)``, node numbers inside their own graph; an undirected edge is listed
          in both directions.
        - ``node_labels``, ``node_attributes``: ``(N, K)`` or None.
        - ``node_vectors``: floats of any width ``(N, K)``, or None; where there are some they are
          the features, as they are.
        - ``edge_labels``, ``edge_attributes``: ``(E, K)`` or None.
    """

    kind = "graph"
    nodes_before: Tensor
    edges_before: Tensor
    edges: Tensor
    node_labels: Tensor | None = None
    node_attributes: Tensor | None = None
    code_sizes: tuple[Sizes, Sizes] | None = None
    """Where labels of nodes and of edges are codes from 0 on: how many values each kind has."""
    encoder_key: str = ""
    """Hash or name of what made ``node_vectors``."""

    @property
    def node_vectors(self) -> Tensor | None:
        """Features of each node that need no preparation; never copied as a whole."""
        return None

    @property
    def edge_labels(self) -> Tensor | None:
        """Labels of each edge."""
        return None

    @property
    def edge_attributes(self) -> Tensor | None:
        """Numbers of each edge."""
        return None

    def __len__(self) -> int:
        return len(self.nodes_before) - 1

    def out_degrees(self) -> Tensor:
        """Return the number of edges that leave each node, ``(N,)``."""
        starts = torch.repeat_interleave(self.nodes_before[:-1], self.edges_before.diff())
        return torch.bincount(self.edges[0] + starts, minlength=int(self.nodes_before[-1]))

    def describe(self, place: int) -> str:
        """Return the number of the graph and its size."""
        both = (self.nodes_before, self.edges_before)
        nodes, edges = (int(before[place + 1] - before[place]) for before in both)
        return f"graph {place} ({nodes} nodes, {edges} edges)"
