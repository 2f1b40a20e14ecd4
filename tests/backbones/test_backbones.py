"""What the package of backbones promises: light imports and a stated width."""

import subprocess
import sys

import pytest
import torch

from hma.backbones import cnn, mlp, resnet18

HEAVY = ("torchvision", "timm", "transformers", "torch_geometric", "sklearn", "matplotlib")


def test_importing_the_backbones_imports_none_of_the_extras():
    program = f"import sys, hma.backbones; print([name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.parametrize(
    "backbone", [mlp(2 * 14 * 14), cnn(2), resnet18(2)], ids=["mlp", "cnn", "resnet18"]
)
def test_feature_dim_is_the_width_of_the_output(backbone):
    features = backbone(torch.rand(3, 2, 14, 14))
    assert features.shape == (3, backbone.feature_dim)
