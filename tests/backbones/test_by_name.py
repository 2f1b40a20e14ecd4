"""Backbones by name, and what the package offers."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import hma
from hma.backbones import GCN, GIN, Frozen, backbone_for, cnn, default_backbone, mlp, resnet18
from hma.backbones.convnets import CNN, ResNet18
from hma.backbones.mlp import MLP, BinnedMLP
from hma.errors import UserError


def task(kind="image", shape=(1, 8, 8), name="pictures"):
    return SimpleNamespace(name=name, kind=kind, shape=shape)


@pytest.mark.parametrize(
    ("spec", "kind", "shape", "expected"),
    [
        ("binned-mlp", "table", (5,), BinnedMLP),
        ("mlp", "table", (5,), MLP),
        ("mlp", "image", (2, 4, 3), MLP),
        ("cnn", "image", (2, 8, 8), CNN),
        ("resnet18", "image", (1, 8, 8), ResNet18),
    ],
)
def test_a_spec_builds_a_module_for_rows_of_that_shape(spec, kind, shape, expected):
    backbone = backbone_for(spec)(task(kind, shape))
    assert type(backbone) is expected
    assert backbone(torch.rand(3, *shape)).shape == (3, backbone.feature_dim)


@pytest.mark.parametrize(("spec", "expected"), [("gin", GIN), ("gcn", GCN)])
def test_graph_specs_take_the_width_of_the_node_features(spec, expected):
    pytest.importorskip("torch_geometric", exc_type=ImportError)
    backbone = backbone_for(spec)(task("graph", (7,)))
    assert type(backbone) is expected
    assert (backbone.in_features, backbone.feature_dim, len(backbone.convolutions)) == (7, 64, 5)


def test_every_build_is_a_module_of_its_own():
    build = backbone_for("mlp")
    first, second = build(task()), build(task())
    assert not torch.equal(next(first.parameters()), next(second.parameters()))


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("mpl", "'mlp'"),
        ("resnet", "'resnet18'"),
        ("gcnn", "'gcn'"),
        ("Timm:resnet18", "'timm:NAME'"),
        ("tim:resnet18", "'timm:NAME'"),
        ("timm:", "'timm:NAME'"),
        ("timm", "'timm:NAME'"),
        ("hf:", "'hf:NAME_OR_DIR'"),
        ("mlp:3", "'mlp'"),
    ],
)
def test_an_unknown_spec_is_refused_before_any_task_and_the_nearest_is_suggested(spec, meant):
    with pytest.raises(
        UserError, match=f"one of .*mlp, .* got '{spec}'; did you mean {meant}"
    ) as e:
        backbone_for(spec)
    assert "\n" not in str(e.value)


def test_a_spec_like_nothing_else_lists_what_there_is():
    with pytest.raises(UserError, match=r"binned-mlp, mlp, cnn, .*hf:NAME_OR_DIR, got 'xyzzy'$"):
        backbone_for("xyzzy")


@pytest.mark.parametrize(
    ("spec", "kind", "use"),
    [
        ("gin", "image", "mlp or cnn or resnet18 or timm:NAME"),
        ("cnn", "graph", "gin or gcn"),
        ("timm:resnet18", "table", "binned-mlp or mlp"),
        ("binned-mlp", "image", "mlp or cnn or resnet18"),
        ("mlp", "text", "hf:NAME_OR_DIR"),
        ("hf:bert-base-uncased", "image", "mlp or cnn"),
    ],
)
def test_a_spec_for_other_rows_names_both_kinds_and_what_would_fit(spec, kind, use):
    message = (
        f"backbone '{spec}' reads rows of kind .*, but mine has rows of kind {kind}; use {use}"
    )
    with pytest.raises(UserError, match=message):
        backbone_for(spec)(task(kind, (4,), name="mine"))


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        ("table", (30,), "binned-mlp"),
        ("image", (1, 8, 8), "mlp"),
        ("image", (2, 14, 14), "mlp"),
        ("image", (1, 28, 28), "cnn"),
        ("image", (3, 32, 32), "cnn"),
        ("image", (3, 16, 64), "cnn"),
        ("image", (3, 65, 8), "timm:resnet18"),
        ("image", (3, 224, 224), "timm:resnet18"),
        ("graph", (7,), "gin"),
    ],
)
def test_defaults_follow_the_kind_and_size_of_a_row(kind, shape, expected):
    assert default_backbone(kind, shape) == expected


def test_text_has_no_default_and_the_message_says_what_to_give():
    with pytest.raises(UserError, match="text has no default backbone; give hf:DIRECTORY"):
        default_backbone("text", (64,))


@pytest.mark.parametrize("spec", ["mlp", "cnn", "resnet18"])
def test_weights_make_the_round_trip(spec, tmp_path):
    saved = backbone_for(spec)(task()).eval()
    path = tmp_path / "weights.safetensors"
    save_file(saved.state_dict(), path)
    loaded = backbone_for(spec, weights=path)(task()).eval()
    x = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(loaded(x), saved(x), rtol=0, atol=0)


def test_weights_of_another_shape_are_refused_in_one_line(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(mlp(10).state_dict(), path)
    with pytest.raises(
        UserError, match=r"does not fit mlp: 1 of another shape \(layers\.0\.weight is"
    ) as e:
        backbone_for("mlp", weights=str(path))(task())
    assert "\n" not in str(e.value)
    assert "(256, 10) in the file and (256, 64) here" in str(e.value)


def test_a_missing_weights_file_is_refused_before_any_task(tmp_path):
    with pytest.raises(UserError, match=r"weights must be a file: .*none\.pth does not exist"):
        backbone_for("mlp", weights=tmp_path / "none.pth")


def frozen_mlp(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(mlp(64).state_dict(), path)
    return backbone_for("mlp", weights=path, frozen=True)(task())


def test_a_frozen_backbone_trains_nothing_and_does_not_change(tmp_path):
    backbone = frozen_mlp(tmp_path)
    model = hma.HMA(backbone, 10, hma.HMAConfig(queue_size=16, slots_per_class=2)).train()
    assert model.momentum_encoder is None
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        x, y = torch.rand(8, 1, 8, 8), torch.randint(10, (8,))
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        model.remember(x, y)
    assert all(value.grad is None for value in backbone.parameters())
    assert model.head.weight.grad is not None
    for name, value in backbone.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_a_frozen_backbone_keeps_dropout_off_and_batch_statistics_still_while_the_model_trains():
    encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    encoder.feature_dim = 8
    model = hma.HMA(Frozen(encoder), 2, hma.HMAConfig(label_dim=8)).train()
    x = torch.rand(6, 4)
    with torch.no_grad():
        expected = encoder[0](x) / (1 + 1e-5) ** 0.5  # statistics still at zero and one
    torch.testing.assert_close(model.backbone(x), expected)
    assert not model.backbone(x.requires_grad_()).requires_grad
    assert model.training
    assert not any(part.training for part in model.backbone.modules())
    assert encoder[1].num_batches_tracked == 0


def test_a_frozen_backbone_without_weights_warns_and_one_with_weights_does_not(tmp_path):
    with pytest.warns(
        UserWarning, match="cnn is frozen and has no weights, so it stays at its ran"
    ):
        backbone_for("cnn", frozen=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen_mlp(tmp_path)
        backbone_for("hf:any", frozen=True)


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
