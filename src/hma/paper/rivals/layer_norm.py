"""A LayerNorm between backbone and head, and nothing else: what of a memory's gain is that?"""

from functools import partial
from typing import Any, final

from torch import Tensor, nn

from hma.checks import feature_dim_of
from hma.data import Task
from hma.methods.erm import erm
from hma.methods.learner import BackboneFactory, Method

EPSILON = 1e-12
"""As in the reads of the paper's memories."""


@final
class LayerNormed(nn.Module):
    """A backbone whose features are normalised row by row, each with a scale and a shift.

    Args:
        backbone: Maps a batch to ``(B, F)``.
    """

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = feature_dim_of(backbone, None)
        self.norm = nn.LayerNorm(self.feature_dim, eps=EPSILON)

    def forward(self, x: Any) -> Tensor:
        """Return the normalised features of a batch, ``(B, F)``."""
        normed: Tensor = self.norm(self.backbone(x))
        return normed


def layer_norm(backbone: BackboneFactory) -> Method:
    """Return :func:`~hma.methods.erm.erm` with a LayerNorm before the head.

    The blocks of a memory normalise what they read. This row has that alone: no block, no memory.
    """
    return erm(partial(_add_norm, backbone))


def _add_norm(backbone: BackboneFactory, task: Task) -> LayerNormed:
    return LayerNormed(backbone(task))
