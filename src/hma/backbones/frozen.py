"""An encoder that is used and never trained."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from hma.checks import feature_dim_of


class Frozen(nn.Module):
    """Hold an encoder still: no gradient, no new BatchNorm statistics, no dropout.

    ``train()`` leaves it in eval mode, and its forward pass records nothing to differentiate.

    Args:
        encoder: Any module that maps a batch to ``(B, F)``; its parameters stop requiring
            gradients.

    Example:
        >>> from hma.backbones import mlp
        >>> still = Frozen(mlp(in_features=4, hidden=(8,), dropout=0.5)).train()
        >>> still.encoder.training, still(torch.rand(2, 4)).requires_grad
        (False, False)
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.feature_dim = feature_dim_of(encoder, None)
        self.encoder = encoder.requires_grad_(False)
        self.train(False)

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode whatever ``mode`` is."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Any) -> Tensor:
        """Return the encoder's features."""
        features: Tensor = self.encoder(x)
        return features
