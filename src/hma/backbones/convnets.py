"""Convolutional networks for small images: DomainBed's of four layers, and ResNet-18."""

import torch.nn.functional as F
from torch import Tensor, nn

from hma.backbones.named_backbone import NamedBackbone
from hma.checks import expect_images

CNN_WIDTHS = (64, 128, 128, 128)
CNN_STRIDES = (1, 2, 1, 1)
CNN_GROUPS = 8
RESNET_WIDTHS = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2


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
        self.feature_dim = CNN_WIDTHS[-1]
        self.layers = nn.Sequential()
        channels = in_channels
        for width, stride in zip(CNN_WIDTHS, CNN_STRIDES, strict=True):
            convolution = nn.Conv2d(channels, width, kernel_size=3, stride=stride, padding=1)
            self.layers.extend([convolution, nn.ReLU(), nn.GroupNorm(CNN_GROUPS, width)])
            channels = width

    def forward(self, images: Tensor) -> Tensor:
        """Return the channel averages of the last layer."""
        expect_images(images, self.in_channels)
        maps: Tensor = self.layers(images)  # (B, in_channels, h, w) -> (B, F, ceil(h/2), ceil(w/2))
        return maps.mean(dim=(2, 3))  # (B, F, ceil(h/2), ceil(w/2)) -> (B, F)


cnn = CNN
"""The name that users write."""


class BasicBlock(nn.Module):
    """Add two 3x3 convolutions to their input: ``relu(shortcut(x) + bn(conv(relu(bn(conv(x))))))``.

    The shortcut is the identity, or a 1x1 convolution where the block changes the shape.

    Args:
        channels_in: Channels of the input.
        channels_out: Channels of the output.
        stride: Step of the first convolution; 2 halves height and width.

    Shape:
        - input: ``(B, channels_in, h, w)``.
        - output: ``(B, channels_out, ceil(h / stride), ceil(w / stride))``.

    Example:
        >>> import torch
        >>> BasicBlock(8, 16, stride=2)(torch.rand(1, 8, 32, 32)).shape
        torch.Size([1, 16, 16, 16])
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(
            channels_in, channels_out, kernel_size=3, stride=stride, padding=1, bias=False
        )
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut.extend(
                [
                    nn.Conv2d(channels_in, channels_out, kernel_size=1, stride=stride, bias=False),
                    nn.BatchNorm2d(channels_out),
                ]
            )

    def forward(self, maps: Tensor) -> Tensor:
        """Return the block's output maps."""
        hidden = F.relu(self.bn1(self.conv1(maps)))  # -> (B, channels_out, h/stride, w/stride)
        hidden = self.bn2(self.conv2(hidden))
        return F.relu(hidden + self.shortcut(maps))


class ResNet18(nn.Module):
    """Apply a 3x3 stem without max-pool and four stages of two blocks, then average the pixels.

    Args:
        in_channels: Number of image channels.

    Shape:
        - input: ``(B, in_channels, height, width)``, 32x32 in the paper.
        - output: ``(B, F)`` with ``F = 512``.

    Example:
        >>> import torch
        >>> backbone = ResNet18().eval()
        >>> backbone(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 512])
    """

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        if in_channels < 1:
            raise ValueError(f"in_channels must be at least 1, got {in_channels}")
        self.in_channels = in_channels
        self.feature_dim = RESNET_WIDTHS[-1]
        self.stem = nn.Conv2d(in_channels, RESNET_WIDTHS[0], kernel_size=3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(RESNET_WIDTHS[0])
        self.blocks = nn.Sequential()
        channels = RESNET_WIDTHS[0]
        for stage, width in enumerate(RESNET_WIDTHS):
            for block in range(BLOCKS_PER_STAGE):
                stride = 2 if stage > 0 and block == 0 else 1
                self.blocks.append(BasicBlock(channels, width, stride))
                channels = width

    def forward(self, images: Tensor) -> Tensor:
        """Return the channel averages of the last stage."""
        expect_images(images, self.in_channels)
        fine = F.relu(self.stem_norm(self.stem(images)))  # (B, in_channels, h, w) -> (B, 64, h, w)
        maps: Tensor = self.blocks(fine)  # (B, 64, h, w) -> (B, F, ceil(h/8), ceil(w/8))
        return maps.mean(dim=(2, 3))  # (B, F, ceil(h/8), ceil(w/8)) -> (B, F)


resnet18 = ResNet18
"""The name that users write."""


NAMED = (
    NamedBackbone("cnn", ("image",), lambda request: cnn(request.shape[0])),
    NamedBackbone("resnet18", ("image",), lambda request: resnet18(request.shape[0])),
)
