"""Node features that are made of degrees, made again where the edges change."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DegreeFeatures:
    """The first columns of the node features: the number of edges that leave a node.

    A batch carries it beside its features, so that whoever changes edges can make them again.

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
        """Return which column of the one-hot degree each node has a 1 in, ``(N,)``."""
        return degrees.clamp(max=self.width - 1)

    def of(self, degrees: Tensor) -> Tensor:
        """Return the features of nodes with these degrees, ``(N,)`` to ``(N, columns)``."""
        if self.width:
            empty = torch.zeros(len(degrees), self.width, device=degrees.device)
            return empty.scatter_(1, self.codes(degrees)[:, None], 1.0)
        mean, deviation = self.moments
        return ((degrees.double() - mean) / deviation).float()[:, None]

    def renewed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return node features ``(N, F)`` with the degrees of these edges; the rest stays."""
        degrees = torch.bincount(edge_index[0], minlength=len(x))
        rest = x[:, self.columns :]  # (N, F - columns)
        return torch.cat([self.of(degrees), rest], dim=1) if rest.shape[1] else self.of(degrees)
