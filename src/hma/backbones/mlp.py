"""A multilayer perceptron; two hidden layers of 256 are the one of IRM's Colored MNIST."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from hma.backbones.named_backbone import NamedBackbone


class MLP(nn.Module):
    """Flatten the input and pass it through ``Linear``, ``ReLU``, ``Dropout`` per hidden layer.

    The last hidden activation is the feature. Weights start Xavier uniform and biases at zero,
    as in IRM's Colored MNIST experiment.

    Args:
        in_features: Number of values in one flattened sample.
        hidden: Widths of the hidden layers; the last one is ``F``.
        dropout: Share of each hidden activation dropped in training.

    Shape:
        - input: ``(B, ...)`` with ``in_features`` values per sample.
        - output: ``(B, F)``.

    Example:
        >>> import torch
        >>> backbone = MLP(in_features=2 * 14 * 14, hidden=(256, 256))
        >>> backbone(torch.rand(5, 2, 14, 14)).shape
        torch.Size([5, 256])
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int] = (256, 256), dropout: float = 0.0
    ) -> None:
        super().__init__()
        expect_layers(in_features, hidden, dropout)
        self.in_features = in_features
        self.feature_dim = hidden[-1]
        self.layers = nn.Sequential()
        for width_in, width_out in zip((in_features, *hidden), hidden, strict=False):
            linear = nn.Linear(width_in, width_out)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
            self.layers.extend([linear, nn.ReLU(), nn.Dropout(dropout)])

    def key_view(self) -> "InputView":
        """Return the inputs as a view of their own, for the keys of a memory."""
        return InputView(self.in_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the last hidden activation of each sample."""
        values = math.prod(inputs.shape[1:])
        if inputs.dim() < 2 or values != self.in_features:
            raise ValueError(
                f"inputs must hold {self.in_features} values per sample, got shape "
                f"{tuple(inputs.shape)}; build the MLP with in_features equal to the product of "
                "all axes after the first"
            )
        flat = inputs.flatten(start_dim=1)  # (B, ...) -> (B, in_features)
        features: Tensor = self.layers(flat)  # (B, in_features) -> (B, F)
        return features


class InputView(nn.Flatten):
    """Samples as they are, flattened.

    Args:
        width: Number of values in one flattened sample.

    Shape:
        - input: ``(B, ...)``; output: ``(B, width)``.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.feature_dim = width


def expect_layers(in_features: int, hidden: Sequence[int], dropout: float) -> None:
    """Raise unless a multilayer perceptron of these sizes can be built."""
    if in_features < 1:
        raise ValueError(f"in_features must be at least 1, got {in_features}")
    if len(hidden) == 0 or min(hidden) < 1:
        raise ValueError(f"hidden must be one or more widths of at least 1, got {hidden}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")


mlp = MLP
"""The name that users write; by default the network of IRM's Colored MNIST."""


NAMED = (NamedBackbone("mlp", ("table", "image"), lambda asked: mlp(math.prod(asked.shape))),)
