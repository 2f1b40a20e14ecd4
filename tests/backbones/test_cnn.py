"""The CNN against DomainBed's layers restated as plain functions on the same weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hma.backbones.cnn import CNN, cnn


def group_norm_by_hand(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(maps)
    width = maps.shape[1] // 8
    for b, sample in enumerate(maps):
        for part in (slice(g * width, (g + 1) * width) for g in range(8)):
            group = sample[part]
            out[b, part] = (group - group.mean()) / (group.var(unbiased=False) + 1e-5).sqrt()
    return out * weight[:, None, None] + bias[:, None, None]


@torch.no_grad()
def features_by_hand(backbone: CNN, images: Tensor) -> Tensor:
    weights = list(backbone.parameters())
    maps = images
    for layer, stride in enumerate([1, 2, 1, 1]):
        kernel, shift, scale, offset = weights[4 * layer : 4 * layer + 4]
        maps = F.conv2d(F.pad(maps, (1, 1, 1, 1)), kernel, shift, stride=stride).clamp(min=0)
        maps = group_norm_by_hand(maps, scale, offset)
    return maps.flatten(start_dim=2).sum(dim=2) / (maps.shape[2] * maps.shape[3])


@pytest.mark.parametrize(("channels", "height", "width"), [(2, 14, 14), (1, 7, 9), (3, 28, 28)])
def test_the_network_matches_its_layers_written_out(channels, height, width):
    torch.manual_seed(0)
    backbone = cnn(in_channels=channels).double()
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # norms must not stay at one and zero
    images = torch.rand(2, channels, height, width).double()
    torch.testing.assert_close(backbone(images).detach(), features_by_hand(backbone, images))


@pytest.mark.parametrize("size", [7, 8, 14, 28, 33])
def test_any_image_size_gives_128_features(size):
    assert cnn(in_channels=2)(torch.rand(3, 2, size, size)).shape == (3, 128)


def test_the_parameters_are_those_of_four_convolutions_and_four_norms():
    channels = [(2, 64), (64, 128), (128, 128), (128, 128)]
    expected = sum(9 * into * out + out + 2 * out for into, out in channels)
    assert sum(parameter.numel() for parameter in cnn(in_channels=2).parameters()) == expected


def test_a_sample_does_not_depend_on_its_batch():
    torch.manual_seed(0)
    backbone = cnn(in_channels=2).double()
    images = torch.rand(4, 2, 14, 14).double()
    alone = torch.cat([backbone(image[None]) for image in images])
    torch.testing.assert_close(backbone(images), alone)


@pytest.mark.parametrize("shape", [(4, 3, 14, 14), (2, 14, 14)])
def test_images_of_the_wrong_shape_are_named(shape):
    with pytest.raises(
        ValueError, match=r"images must have shape \(\*, 2, \*, \*\), got .*in_chan"
    ):
        cnn(in_channels=2)(torch.zeros(shape))


def test_no_channels_is_refused():
    with pytest.raises(ValueError, match="in_channels must be at least 1, got 0"):
        cnn(in_channels=0)
