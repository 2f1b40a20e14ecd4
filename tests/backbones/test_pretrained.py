"""timm and Hugging Face encoders by name, against the libraries' own forward passes."""

import importlib.util
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import hma
from hma.backbones import backbone_for
from hma.errors import UserError
from hma.extras import ensure_torchvision

needs_timm = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="needs the vision extra"
)
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs the text extra"
)


def images(*shape):
    return SimpleNamespace(name="pictures", kind="image", shape=shape)


def texts(tokens=12):
    return SimpleNamespace(name="texts", kind="text", shape=(tokens,))


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Any attempt to reach the network is an error."""

    def refused(*arguments, **options):
        raise AssertionError(f"tried to connect: {arguments}")

    monkeypatch.setattr("socket.socket.connect", refused)
    monkeypatch.setattr("socket.create_connection", refused)
    monkeypatch.setattr("socket.getaddrinfo", refused)


@pytest.fixture
def timm():
    ensure_torchvision()
    import timm

    return timm


@needs_timm
@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("resnet18", (3, 32, 32), {}),
        ("resnet18", (1, 40, 24), {"in_chans": 1}),
        ("vit_tiny_patch16_224", (3, 32, 48), {"img_size": (32, 48)}),
        ("mobilenetv3_small_050", (3, 32, 32), {}),
    ],
)
def test_features_are_those_of_timms_model_without_a_classifier(name, shape, options, timm):
    torch.manual_seed(1)
    backbone = backbone_for(f"timm:{name}")(images(*shape)).eval()
    torch.manual_seed(1)
    own = timm.create_model(name, num_classes=0, **options).eval()
    x = torch.rand(2, *shape)
    with torch.no_grad():
        features = backbone(x)
        torch.testing.assert_close(features, own(x), rtol=0, atol=0)
    assert features.shape == (2, backbone.feature_dim)
    model = hma.HMA(backbone, 4, hma.HMAConfig(queue_size=8, slots_per_class=1)).train()
    model(x).sum().backward()
    assert all(value.grad is not None for value in backbone.parameters())


@needs_timm
def test_looking_at_the_width_leaves_the_statistics_alone_and_the_model_in_training_mode(timm):
    backbone = backbone_for("timm:resnet18")(images(3, 32, 32))
    assert all(part.training for part in backbone.modules())
    assert backbone.model.bn1.num_batches_tracked == 0
    assert backbone.model.bn1.running_mean.count_nonzero() == 0


@needs_timm
@pytest.mark.parametrize("classes", [1000, 5, 0])
@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_weights_with_or_without_a_classifier_make_the_round_trip(classes, suffix, timm, tmp_path):
    trained = timm.create_model("resnet18", num_classes=classes).eval()
    path = tmp_path / f"resnet18.{suffix}"
    state = trained.state_dict()
    save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    backbone = backbone_for("timm:resnet18", weights=path, frozen=True)(images(3, 32, 32))
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        expected = trained.forward_head(trained.forward_features(x), pre_logits=True)
    torch.testing.assert_close(backbone(x), expected, rtol=0, atol=0)
    assert "state_dict" not in backbone.encoder.model.pretrained_cfg


@needs_timm
def test_colour_weights_on_gray_images_see_the_gray_image_in_every_channel(timm, tmp_path):
    trained = timm.create_model("resnet18", num_classes=0).eval()
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    backbone = backbone_for("timm:resnet18", weights=tmp_path / "w.safetensors")(images(1, 32, 32))
    gray = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        expected = trained(gray.expand(-1, 3, -1, -1))
        torch.testing.assert_close(backbone.eval()(gray), expected, rtol=1e-4, atol=1e-5)


@needs_timm
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_weights_for_as_many_channels_as_the_images_have_are_taken_as_they_are(
    channels, timm, tmp_path
):
    trained = timm.create_model("resnet18", num_classes=0, in_chans=channels).eval()
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    build = backbone_for("timm:resnet18", weights=tmp_path / "w.safetensors")
    x = torch.rand(2, channels, 32, 32)
    with torch.no_grad():
        features = build(images(channels, 32, 32)).eval()(x)
        torch.testing.assert_close(features, trained(x), rtol=0, atol=0)
    other = 4 if channels == 2 else 2
    with pytest.raises(UserError, match=f"with {channels} channels, these have {other}; only"):
        build(images(other, 32, 32))


@needs_timm
def test_position_embeddings_of_another_image_size_are_resampled_as_timm_does(timm, tmp_path):
    name = "vit_tiny_patch16_224"
    state = timm.create_model(name, num_classes=0, img_size=64).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    backbone = backbone_for(f"timm:{name}", weights=tmp_path / "w.safetensors")(images(3, 32, 32))
    found = backbone.model.state_dict()
    assert found["pos_embed"].shape == (1, 1 + 2 * 2, 192)
    resampled = timm.layers.resample_abs_pos_embed(state["pos_embed"], new_size=[2, 2])
    torch.testing.assert_close(found["pos_embed"], resampled)
    torch.testing.assert_close(found["blocks.3.mlp.fc1.weight"], state["blocks.3.mlp.fc1.weight"])


@needs_timm
def test_weights_of_another_model_are_refused_in_one_line(timm, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(timm.create_model("mobilenetv3_small_050", num_classes=0).state_dict(), path)
    with pytest.raises(
        UserError, match=r"w\.safetensors does not fit timm:resnet18: .* missing from"
    ) as e:
        backbone_for("timm:resnet18", weights=path)(images(3, 32, 32))
    assert "\n" not in str(e.value)
    save_file({"fc.weight": torch.zeros(2, 512)}, path)
    with pytest.raises(UserError, match="holds nothing but a classifier"):
        backbone_for("timm:resnet18", weights=path)(images(3, 32, 32))


@needs_timm
def test_one_missing_tensor_is_enough_to_refuse_a_file(timm, tmp_path):
    state = timm.create_model("resnet18", num_classes=3).state_dict()
    del state["layer4.1.bn2.weight"]
    save_file(state, tmp_path / "w.safetensors")
    message = r"does not fit timm:resnet18: 1 missing from the file \(layer4\.1\.bn2\.weight\)$"
    with pytest.raises(UserError, match=message):
        backbone_for("timm:resnet18", weights=tmp_path / "w.safetensors")(images(3, 32, 32))


@needs_timm
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet81", "timm has no model called 'resnet81'; did you mean .*resnet18"),
        ("hf-hub:owner/name", "timm has no model called 'hf-hub:owner/name'"),
        ("local-dir:.", "timm has no model called 'local-dir:'"),
        ("resnet18.no_such_tag", "timm:resnet18.no_such_tag cannot be built: .*no_such_tag"),
    ],
)
def test_a_name_timm_does_not_know_is_refused(name, message):
    with pytest.raises(UserError, match=message):
        backbone_for(f"timm:{name}")(images(3, 32, 32))


@needs_timm
@pytest.mark.parametrize(
    ("name", "shape"), [("inception_v3", (3, 16, 16)), ("vit_tiny_patch16_224", (3, 8, 8))]
)
def test_images_a_model_cannot_take_are_refused_when_it_is_built(name, shape):
    with pytest.raises(
        UserError, match=rf"timm:{name} cannot take images of shape \(3, .*\): "
    ) as e:
        backbone_for(f"timm:{name}")(images(*shape))
    assert "\n" not in str(e.value)


# ------------------------------------------------------------------ Hugging Face

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "very", "long"]


@pytest.fixture
def transformers():
    if importlib.util.find_spec("torchvision") is not None:
        ensure_torchvision()
    import transformers

    return transformers


@pytest.fixture
def tiny(transformers, tmp_path):
    """A random BERT with its tokenizer in a folder, as ``save_pretrained`` leaves it."""
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    folder = tmp_path / "tiny-bert"
    model.save_pretrained(folder)
    transformers.BertTokenizerFast(vocab=str(vocabulary)).save_pretrained(folder)
    return SimpleNamespace(folder=folder, model=model, config=config)


@needs_transformers
def test_features_are_the_mean_of_the_encoders_last_states_over_the_words(tiny, transformers):
    backbone = backbone_for(f"hf:{tiny.folder}")(texts()).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny.folder)
    sentences = ["a good film", "a very very long film", "bad"]
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    assert (batch["attention_mask"] == 0).any()
    with torch.no_grad():
        features = backbone(batch)
        for sentence, row in zip(sentences, features, strict=True):
            alone = tokenizer([sentence], return_tensors="pt")
            torch.testing.assert_close(row, tiny.model(**alone).last_hidden_state[0].mean(dim=0))
    assert backbone.feature_dim == 8


@needs_transformers
def test_every_weight_that_requires_a_gradient_gets_one(tiny):
    backbone = backbone_for(f"hf:{tiny.folder}")(texts())
    assert all(part.training for part in backbone.modules())
    backbone({"input_ids": torch.tensor([[2, 4, 5, 3]])}).square().sum().backward()
    without = [n for n, v in backbone.named_parameters() if v.requires_grad and v.grad is None]
    assert without == []
    assert not backbone.model.pooler.dense.weight.requires_grad


@needs_transformers
def test_a_frozen_text_encoder_gets_no_gradient_and_does_not_drop_out(tiny):
    backbone = backbone_for(f"hf:{tiny.folder}", frozen=True)(texts()).train()
    batch = {"input_ids": torch.tensor([[2, 4, 5, 3]])}
    torch.testing.assert_close(backbone(batch), backbone(batch), rtol=0, atol=0)
    assert not any(value.requires_grad for value in backbone.parameters())
    assert not backbone(batch).requires_grad


@needs_transformers
def test_half_precision_files_become_full_precision_encoders(tiny, tmp_path):
    tiny.model.half().save_pretrained(tmp_path / "half")
    backbone = backbone_for(f"hf:{tmp_path / 'half'}")(texts())
    assert {value.dtype for value in backbone.parameters()} == {torch.float32}


@needs_transformers
def test_text_weights_from_a_file_replace_those_of_the_folder(tiny, transformers, tmp_path):
    tuned = transformers.BertForSequenceClassification(tiny.config).eval()
    save_file(tuned.state_dict(), tmp_path / "tuned.safetensors")
    build = backbone_for(f"hf:{tiny.folder}", weights=tmp_path / "tuned.safetensors")
    batch = {"input_ids": torch.tensor([[2, 4, 5, 3]])}
    with torch.no_grad():
        expected = tuned.bert(**batch).last_hidden_state.mean(dim=1)
        torch.testing.assert_close(build(texts()).eval()(batch), expected)


@needs_transformers
def test_an_encoder_with_a_missing_layer_is_refused_and_one_without_a_pooler_is_not(tiny):
    path = tiny.folder / "model.safetensors"
    state = tiny.model.state_dict()
    without_pooler = {n: v for n, v in state.items() if not n.startswith("pooler.")}
    save_file(without_pooler, path, metadata={"format": "pt"})
    backbone_for(f"hf:{tiny.folder}")(texts())
    first_layer = {n: v for n, v in without_pooler.items() if "layer.1." not in n}
    save_file(first_layer, path, metadata={"format": "pt"})
    with pytest.raises(
        UserError, match=r"lacks weights of its own encoder: 16 missing, such as .*layer\.1"
    ):
        backbone_for(f"hf:{tiny.folder}")(texts())


@needs_transformers
def test_rows_longer_than_the_encoder_reads_are_refused(tiny):
    backbone_for(f"hf:{tiny.folder}")(texts(16))
    with pytest.raises(
        UserError, match=r"reads at most 16 tokens, the rows have up to 17; prepare"
    ):
        backbone_for(f"hf:{tiny.folder}")(texts(17))


@needs_transformers
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("owner/model", "neither a folder nor in the local cache; .*`hf download owner/model`"),
        ("plain-name", "neither a folder nor in the local cache; .*`hf download plain-name`"),
        ("./nowhere", "hf:./nowhere names a folder that is not there"),
        ("/no/such/folder", "hf:/no/such/folder names a folder that is not there"),
    ],
)
def test_a_name_that_is_not_here_says_how_to_fetch_it(name, message, transformers):
    with pytest.raises(UserError, match=message):
        backbone_for(f"hf:{name}")(texts())


@needs_transformers
def test_a_folder_without_a_model_is_named(tmp_path, transformers):
    with pytest.raises(UserError, match=f"hf:{tmp_path} cannot be loaded: "):
        backbone_for(f"hf:{tmp_path}")(texts())


@needs_transformers
def test_a_name_in_the_local_cache_is_found_without_the_network(tiny, tmp_path, monkeypatch):
    import huggingface_hub.constants as constants

    snapshot = tmp_path / "hub" / "models--owner--tiny" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    tiny.folder.rename(snapshot)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(
        "transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path / "hub"), raising=False
    )
    backbone = backbone_for("hf:owner/tiny")(texts())
    torch.testing.assert_close(
        backbone.model.embeddings.word_embeddings.weight,
        tiny.model.embeddings.word_embeddings.weight,
    )
    assert isinstance(backbone, nn.Module)


@needs_timm
def test_a_timm_model_that_still_has_its_classifier_is_refused_with_the_remedy():
    ensure_torchvision()
    import timm

    whole = timm.create_model("resnet18")
    with pytest.raises(ValueError, match=r"timm ResNet that still has its classifier of 1000 cl"):
        hma.HMA(whole, 10)
    whole.reset_classifier(0)
    assert hma.HMA(whole, 10).feature_dim == 512
