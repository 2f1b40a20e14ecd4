"""Two views of one input: what the head reads, and what a memory finds its rows by."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hma.checks import expect_tensor, feature_dim_of


class TwoViews(nn.Module):
    """Put what ``key_encoder`` makes of a batch beside the features of a backbone.

    A memory that looks where the head looks errs where the head errs. Another view, such as the
    inputs, an earlier layer or a frozen encoder, is worth more to it.

    Args:
        backbone: Maps a batch to features ``(B, F)``, for the head.
        key_encoder: Maps the same batch to ``(B, E)``, for the keys of the memory.
        feature_dim: ``F``, where the backbone does not say.

    Shape:
        - input: whatever both take; output: ``(B, F + E)``.

    Example:
        >>> both = TwoViews(nn.Linear(3, 8), nn.Flatten(), feature_dim=8, key_width=3)
        >>> both(torch.rand(2, 3)).shape, both.key_width
        (torch.Size([2, 11]), 3)
    """

    def __init__(
        self,
        backbone: nn.Module,
        key_encoder: nn.Module,
        *,
        feature_dim: int | None = None,
        key_width: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.key_encoder = key_encoder
        self.key_width = _key_width(key_encoder, key_width)
        self.feature_dim = feature_dim_of(backbone, feature_dim) + self.key_width

    def forward(self, x: Any) -> Tensor:
        """Return the features, then the key view."""
        features = expect_tensor("features", self.backbone(x))
        keys = expect_tensor("what key_encoder returns", self.key_encoder(x))
        return torch.cat([features, keys.to(features.dtype)], dim=1)

    def without_keys(self, x: Any) -> Tensor:
        """Return the features, with zeros where the key view would be."""
        return pad(expect_tensor("features", self.backbone(x)), (0, self.key_width))


def _key_width(key_encoder: nn.Module, given: int | None) -> int:
    try:
        return feature_dim_of(key_encoder, given)
    except ValueError as error:
        raise ValueError(
            f"key_encoder must have an attribute num_features or feature_dim, got "
            f"{type(key_encoder).__name__}; set key_encoder.feature_dim to the width of its output"
        ) from error


def with_key_view(
    backbone: nn.Module, key_encoder: nn.Module | None, feature_dim: int | None, *, offered: bool
) -> tuple[nn.Module, int]:
    """Return the encoder of a memory that votes, and how wide the view of its keys is.

    Args:
        backbone: What the head reads; one that has two views already stays as it is.
        key_encoder: What keys are made of; None for what the backbone offers.
        feature_dim: Width of its features, where it does not say.
        offered: Whether to take the view that a backbone offers by a method ``key_view``.
    """
    if key_encoder is None and offered and callable(getattr(backbone, "key_view", None)):
        key_encoder = backbone.key_view()  # type: ignore[operator]
    if key_encoder is not None:
        backbone = TwoViews(backbone, key_encoder, feature_dim=feature_dim)
    width = getattr(backbone, "key_width", 0)
    return backbone, width if isinstance(width, int) else 0
