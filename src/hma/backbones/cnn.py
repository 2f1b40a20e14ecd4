"""The small convolutional network DomainBed uses for MNIST-sized images."""

from torch import Tensor, nn

from hma.backbones.named_backbone import NamedBackbone
from hma.checks import expect_images

WIDTHS = (64, 128, 128, 128)
STRIDES = (1, 2, 1, 1)
GROUPS = 8


class CNN(nn.Module):
    """Apply four 3x3 convolutions, each with ReLU then GroupNorm, and average over the pixels.

    Padding keeps the image size except at the second convolution, which halves it, so any
    image size works; 28x28 and 14x14 are those of Colored MNIST.

    Args:
        in_channels: Number of image channels.

    Shape:
        - input: ``(B, in_channels, height, width)``.
        - output: ``(B, F)`` with ``F = 128``.

    Example:
        >>> import torch
        >>> backbone = CNN(in_channels=2)
        >>> backbone(torch.rand(5, 2, 14, 14)).shape
        torch.Size([5, 128])
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        if in_channels < 1:
            raise ValueError(f"in_channels must be at least 1, got {in_channels}")
        self.in_channels = in_channels
        self.feature_dim = WIDTHS[-1]
        self.layers = nn.Sequential()
        channels = in_channels
        for width, stride in zip(WIDTHS, STRIDES, strict=True):
            convolution = nn.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1)
            self.layers.extend([convolution, nn.ReLU(), nn.GroupNorm(GROUPS, width)])
            channels = width

    def forward(self, images: Tensor) -> Tensor:
        """Return the channel averages of the last layer."""
        expect_images(images, self.in_channels)
        maps: Tensor = self.layers(images)  # (B, in_channels, h, w) -> (B, F, ceil(h/2), ceil(w/2))
        return maps.mean(dim=(2, 3))  # (B, F, ceil(h/2), ceil(w/2)) -> (B, F)


cnn = CNN
"""The name that users write."""


NAMED = (NamedBackbone("cnn", ("image",), lambda asked: cnn(asked.shape[0])),)
