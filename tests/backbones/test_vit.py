"""Tuned Vision Transformers against timm's own forward pass and loops over its blocks."""

import importlib.util

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

import hma
from hma.backbones import Frozen
from hma.backbones.vit import Prompts, TunedViT, vit
from hma.errors import UserError
from hma.extras import ensure_torchvision

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="needs the vision extra"
)
SHAPE = (3, 16, 24)
SMALL = {"patch_size": 8, "depth": 3, "embed_dim": 12, "num_heads": 3}
WAYS = [None, "first", "deep"]


def small(name="vit_tiny_patch16_224", shape=SHAPE, **options):
    return vit(name, shape, settings=SMALL | options.pop("settings", {}), **options)


def by_hand(backbone, images):
    """Write the paper's two ways of prompting out, block by block, image by image."""
    model, features = backbone.model, []
    for image in images[:, None]:
        patches = model.patch_embed(image)[0]
        tokens = torch.cat([model.cls_token[0], patches]) + model.pos_embed[0]
        for number, block in enumerate(model.blocks):
            if backbone.prompts is None:
                tokens = block(tokens[None])[0]
            elif backbone.prompts.kind == "deep":
                fresh = backbone.prompts.tokens[number]
                tokens = block(torch.cat([tokens, fresh])[None])[0][: 1 + len(patches)]
            else:
                if number == 0:
                    tokens = torch.cat([tokens, backbone.prompts.tokens[0]])
                tokens = block(tokens[None])[0]
        features.append(model.norm(tokens[0]))
    return torch.stack(features)


@pytest.mark.parametrize(
    "name",
    ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "vit_base_patch32_clip_224",
     "vit_small_patch14_reg4_dinov2"],
)  # fmt: skip
def test_full_tuning_without_prompts_is_timms_cls_token(name):
    ensure_torchvision()
    import timm

    torch.manual_seed(1)
    backbone = small(name).eval()
    torch.manual_seed(1)
    own = timm.create_model(name, num_classes=0, img_size=SHAPE[1:], **SMALL).eval()
    x = torch.rand(2, *SHAPE)
    with torch.no_grad():
        expected = own.forward_features(x)[:, 0]
        torch.testing.assert_close(backbone(x), expected, rtol=0, atol=0)
    assert backbone.feature_dim == own.num_features == 12
    assert all(value.requires_grad for value in backbone.parameters())


@pytest.mark.parametrize("tuning", ["full", "part"])
@pytest.mark.parametrize("prompts", WAYS)
def test_features_match_a_loop_over_images_and_blocks(tuning, prompts):
    backbone = small(tuning=tuning, prompts=prompts, prompt_tokens=2).double().train()
    if prompts is not None:
        nn.init.normal_(backbone.prompts.tokens)  # large enough to be noticed
    x = torch.rand(3, *SHAPE, dtype=torch.float64)
    torch.testing.assert_close(backbone(x), by_hand(backbone, x), rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(["first", "deep"]), st.integers(0, 3), st.integers(1, 4), st.integers(1, 4))
def test_prompts_of_any_number_leave_the_images_tokens_in_place(kind, rows, own, count):
    blocks = nn.ModuleList([nn.Identity(), nn.Identity()])
    tokens = torch.rand(rows, own, 6)
    seen = Prompts(kind, count, depth=2, dim=6)(tokens, blocks)
    assert seen.shape == (rows, own + (count if kind == "first" else 0), 6)
    torch.testing.assert_close(seen[:, :own], tokens, rtol=0, atol=0)


def test_prompts_start_as_the_paper_says():
    deep = small(prompts="deep", prompt_tokens=400).prompts.tokens.detach()
    assert deep.shape == (3, 400, 12)
    assert small(prompts="first").prompts.tokens.shape == (1, 5, 12)
    assert float(deep.std()) == pytest.approx(0.02, rel=0.03)
    assert float(deep.mean()) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("prompts", WAYS)
def test_part_tuning_trains_cls_token_and_prompts_alone_by_the_true_gradient(prompts):
    backbone = small(tuning="part", prompts=prompts, prompt_tokens=2).double().train()
    wanted = {"model.cls_token"} | ({"prompts.tokens"} if prompts else set())
    x = torch.rand(2, *SHAPE, dtype=torch.float64)
    target = torch.rand(2, 12, dtype=torch.float64)

    def loss():
        return ((backbone(x) - target) ** 2).sum()

    loss().backward()
    got = {name for name, value in backbone.named_parameters() if value.grad is not None}
    assert got == wanted == {n for n, v in backbone.named_parameters() if v.requires_grad}
    step = 1e-6
    for name, value in backbone.named_parameters():
        if name not in wanted:
            continue
        flat = value.data.view(-1)
        for place in range(0, len(flat), max(1, len(flat) // 7)):
            with torch.no_grad():
                flat[place] += step
                above = loss()
                flat[place] -= 2 * step
                below = loss()
                flat[place] += step
            slope = (above - below) / (2 * step)
            torch.testing.assert_close(value.grad.view(-1)[place], slope, rtol=1e-5, atol=1e-7)


def test_part_tuning_leaves_every_other_weight_bit_for_bit():
    backbone = small(tuning="part", prompts="first")
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)
    backbone(torch.rand(2, *SHAPE)).square().sum().backward()
    optimizer.step()
    changed = {n for n, v in backbone.state_dict().items() if not torch.equal(v, before[n])}
    assert changed == {"model.cls_token", "prompts.tokens"}


@pytest.mark.parametrize(("tuning", "depends"), [("full", True), ("part", False)])
def test_stochastic_depth_and_dropout_are_off_in_part_tuning(tuning, depends):
    backbone = small(tuning=tuning, settings={"drop_path_rate": 0.5, "proj_drop_rate": 0.5})
    x = torch.rand(8, *SHAPE)
    backbone.eval().train()
    assert torch.equal(backbone(x), backbone(x)) != depends


def test_tuning_none_trains_nothing_and_records_nothing():
    backbone = small(tuning="none")
    assert isinstance(backbone, Frozen)
    assert not any(value.requires_grad for value in backbone.parameters())
    assert not backbone(torch.rand(2, *SHAPE)).requires_grad


@pytest.mark.parametrize("prompts", WAYS)
def test_state_makes_the_round_trip(prompts, tmp_path):
    first = small(tuning="part", prompts=prompts)
    save_file(first.state_dict(), tmp_path / "w.safetensors")
    second = small(tuning="part", prompts=prompts)
    second.load_state_dict(load_file(tmp_path / "w.safetensors"))
    x = torch.rand(2, *SHAPE)
    torch.testing.assert_close(first(x), second(x), rtol=0, atol=0)


def test_weights_of_a_file_are_tuned_from(tmp_path):
    ensure_torchvision()
    import timm

    trained = timm.create_model(
        "vit_tiny_patch16_224", num_classes=9, img_size=SHAPE[1:], **SMALL
    ).eval()
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    x = torch.rand(2, *SHAPE)
    for tuning in ("full", "part", "none"):
        backbone = small(tuning=tuning, weights=tmp_path / "w.safetensors").eval()
        with torch.no_grad():
            expected = trained.forward_features(x)[:, 0]
            torch.testing.assert_close(backbone(x), expected, rtol=0, atol=0)


def test_memory_takes_every_way_of_tuning_and_a_momentum_encoder_only_where_asked():
    x, y = torch.rand(4, *SHAPE), torch.tensor([0, 1, 2, 0])
    for tuning, momentum, follows in [
        ("full", 0.999, True),
        ("part", 0, False),
        ("none", 0.9, False),
    ]:
        backbone = small(tuning=tuning)
        config = hma.HMAConfig(label_dim=4, queue_size=8, slots_per_class=1, momentum=momentum)
        model = hma.HMA(backbone, 3, config).train()
        model(x).sum().backward()
        model.remember(x, y)
        assert (model.momentum_encoder is not None) == follows
        torch.testing.assert_close(model.memory_state().features, backbone.eval()(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tuning": "ful"},
            "tuning must be one of 'full', 'part', 'none', got 'ful'; did you mean",
        ),
        ({"prompts": "depe"}, "prompts must be one of 'first', 'deep', got 'depe'; did you mean"),
        ({"prompts": "deep", "prompt_tokens": 0}, "prompt_tokens must be at least 1, got 0"),
        ({"prompts": "deep", "tuning": "none"}, "use tuning='part'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        small(**options)


@pytest.mark.parametrize("name", ["resnet18", "swin_tiny_patch4_window7_224"])
def test_another_architecture_is_named(name):
    with pytest.raises(UserError, match=f"timm:{name} cannot be tuned as a Vision Transformer"):
        vit(name, (3, 224, 224))


def test_a_transformer_without_a_cls_feature_is_refused():
    with pytest.raises(UserError, match="must pool by its CLS token"):
        small("vit_medium_patch16_gap_240")
    with pytest.raises(ValueError, match="must be a plain VisionTransformer of timm, got Linear"):
        TunedViT(nn.Linear(2, 2))


@pytest.mark.data
def test_a_tiny_vit_at_112_pixels_is_timms_own_with_49_patches(data_root):
    ensure_torchvision()
    import timm
    from timm.models.vision_transformer import checkpoint_filter_fn

    name = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    weights = data_root / "weights" / f"{name}.safetensors"
    if not weights.is_file():
        pytest.skip(f"real data is absent: the weights are not at {weights}")
    backbone = vit(name, (3, 112, 112), tuning="part", weights=weights)
    given = load_file(weights)
    own = timm.create_model(name, img_size=112).eval()
    own.load_state_dict(checkpoint_filter_fn(dict(given), own))
    x = torch.rand(2, 3, 112, 112)
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), own.forward_features(x)[:, 0], rtol=0, atol=0)
    assert backbone.model.patch_embed.num_patches == 49
    assert backbone.model.pos_embed.shape == (1, 50, 192)
    assert given["pos_embed"].shape == (1, 197, 192)
    torch.testing.assert_close(backbone.model.pos_embed[:, 0], given["pos_embed"][:, 0])
