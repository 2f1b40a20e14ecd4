"""A node that all nodes of a graph speak to, as in OGB's example."""

from torch import Tensor, nn

from hma.backbones.gnn.norm import BatchNorm


class VirtualNode(nn.Module):
    """A node joined to all nodes of its graph: it hears their sum and speaks to each of them.

    Args:
        width: Width of the nodes, ``W``.
        dropout: Share of its values dropped in training.

    Shape:
        - ``state``, ``heard`` (the sum of each graph's nodes) and output: ``(B, W)``.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 2 * width), BatchNorm(2 * width), nn.ReLU(),
            nn.Linear(2 * width, width), BatchNorm(width), nn.ReLU(), nn.Dropout(dropout),
        )  # fmt: skip

    def forward(self, state: Tensor, heard: Tensor) -> Tensor:
        """Return the state after one exchange."""
        after: Tensor = self.layers(state + heard)
        return after
