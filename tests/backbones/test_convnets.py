"""Convolutional networks for small images, against their definitions."""

import importlib.util
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hma.backbones.convnets import CNN, BasicBlock, cnn, resnet18

SAME_AS_TORCHVISION = """
import torch
from torch import nn

torch.set_num_threads(1)
from hma.extras import ensure_torchvision

ensure_torchvision()
import torchvision

from hma.backbones.convnets import resnet18

torch.manual_seed(0)
ours = resnet18().double()
theirs = torchvision.models.resnet18(num_classes=10)
theirs.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
theirs.maxpool = nn.Identity()
theirs.fc = nn.Identity()
theirs = theirs.double()
for weight in ours.parameters():
    nn.init.normal_(weight, std=0.1)  # norms must not stay at one and zero
names = list(theirs.state_dict())
theirs.load_state_dict(dict(zip(names, ours.state_dict().values(), strict=True)))
images = torch.rand(3, 3, 32, 32).double()
torch.testing.assert_close(ours(images), theirs(images))
for left, right in zip(ours.buffers(), theirs.buffers(), strict=True):
    torch.testing.assert_close(left, right)
torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))
print("same")
"""


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
def test_images_of_the_wrong_shape_are_named_by_the_cnn(shape):
    with pytest.raises(
        ValueError, match=r"images must have shape \(\*, 2, \*, \*\), got .*in_chan"
    ):
        cnn(in_channels=2)(torch.zeros(shape))


def test_no_channels_is_refused_by_the_cnn():
    with pytest.raises(ValueError, match="in_channels must be at least 1, got 0"):
        cnn(in_channels=0)


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="needs the vision extra"
)
def test_features_and_batch_statistics_equal_torchvisions_with_the_cifar_stem():
    program = [sys.executable, "-c", SAME_AS_TORCHVISION]
    run = subprocess.run(program, capture_output=True, text=True)
    assert run.stdout.strip() == "same", run.stderr


def test_the_parameters_are_kuangliu_s_without_the_head():
    count = sum(parameter.numel() for parameter in resnet18().parameters())
    assert count == 11_173_962 - (512 * 10 + 10) == 11_168_832


def test_a_32_pixel_image_is_halved_three_times_after_an_unreduced_stem():
    backbone = resnet18().eval()
    sizes = []
    for block in backbone.blocks:
        block.register_forward_hook(lambda _, __, maps: sizes.append(tuple(maps.shape[1:])))
    features = backbone(torch.rand(2, 3, 32, 32))
    by_stage = [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert sizes == [size for size in by_stage for _ in range(2)]
    assert features.shape == (2, 512)


def test_a_block_of_zero_convolutions_passes_a_positive_input_through():
    block = BasicBlock(4, 4, stride=1).eval()
    for weight in (block.conv1.weight, block.conv2.weight):
        torch.nn.init.zeros_(weight)
    maps = torch.rand(2, 4, 5, 5)
    torch.testing.assert_close(block(maps), maps, rtol=0, atol=0)


def test_other_channel_counts_change_the_stem_only():
    gray, colour = resnet18(in_channels=1).state_dict(), resnet18().state_dict()
    different = [name for name in colour if gray[name].shape != colour[name].shape]
    assert different == ["stem.weight"]


@pytest.mark.parametrize("shape", [(4, 1, 32, 32), (3, 32, 32)])
def test_images_of_the_wrong_shape_are_named_by_the_resnet(shape):
    with pytest.raises(
        ValueError, match=r"images must have shape \(\*, 3, \*, \*\), got .*in_chan"
    ):
        resnet18()(torch.zeros(shape))


def test_no_channels_is_refused_by_the_resnet():
    with pytest.raises(ValueError, match="in_channels must be at least 1, got 0"):
        resnet18(in_channels=0)
