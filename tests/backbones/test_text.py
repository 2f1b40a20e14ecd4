"""Pooling against loops over the positions, and a real Hugging Face encoder end to end."""

import importlib.util
import subprocess
import sys
from collections import UserDict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hma.backbones.text import TransformerFeatures

PAD = 0


class Encoder(nn.Module):
    """An embedding in the shape of a Hugging Face encoder; padding has a loud vector."""

    def __init__(self, width=4, padding=1000.0):
        super().__init__()
        self.config = SimpleNamespace(hidden_size=width)
        self.embedding = nn.Embedding(50, width)
        self.embedding.weight.data[PAD] = padding
        self.received = []

    def forward(self, **inputs):
        self.received.append(sorted(inputs))
        return SimpleNamespace(last_hidden_state=self.embedding(inputs["input_ids"]))


def tokens(rows, side="right", mask=True):
    longest = max(len(row) for row in rows)
    blank = [[PAD] * (longest - len(row)) for row in rows]
    pairs = zip(rows, blank, strict=True)
    ids = torch.tensor([row + pad if side == "right" else pad + row for row, pad in pairs])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()} if mask else {"input_ids": ids}


ROWS = [[5, 7, 9, 2], [3], [8, 8]]


@pytest.mark.parametrize("side", ["right", "left"])
def test_mean_pooling_is_the_mean_over_the_tokens_of_each_text(side):
    encoder = Encoder()
    vectors = encoder.embedding.weight
    expected = [sum(vectors[token] for token in row) / len(row) for row in ROWS]
    features = TransformerFeatures(encoder)(tokens(ROWS, side))
    torch.testing.assert_close(features, torch.stack(expected))


@pytest.mark.parametrize("side", ["right", "left"])
def test_cls_pooling_is_the_first_token_of_each_text(side):
    encoder = Encoder()
    expected = torch.stack([encoder.embedding.weight[row[0]] for row in ROWS])
    features = TransformerFeatures(encoder, pool="cls")(tokens(ROWS, side))
    torch.testing.assert_close(features, expected, rtol=0, atol=0)


@pytest.mark.parametrize("side", ["right", "left"])
def test_max_pooling_is_the_largest_value_of_each_feature(side):
    encoder = Encoder()
    vectors = encoder.embedding.weight.tolist()
    expected = [[max(vectors[token][place] for token in row) for place in range(4)] for row in ROWS]
    features = TransformerFeatures(encoder, pool="max")(tokens(ROWS, side))
    torch.testing.assert_close(features, torch.tensor(expected), rtol=0, atol=0)


def test_normalised_features_are_divided_by_their_length():
    encoder = Encoder()
    expected = []
    for row in TransformerFeatures(encoder)(tokens(ROWS)).tolist():
        length = sum(value * value for value in row) ** 0.5
        expected.append([value / length for value in row])
    features = TransformerFeatures(encoder, normalize=True)(tokens(ROWS))
    torch.testing.assert_close(features, torch.tensor(expected))


@pytest.mark.parametrize("pool", ["mean", "cls", "max"])
@pytest.mark.parametrize("padding", [1000.0, float("inf"), float("nan")])
def test_padding_never_changes_the_features(pool, padding):
    backbone = TransformerFeatures(Encoder(padding=padding), pool=pool)
    alone = torch.cat([backbone(tokens([row])) for row in ROWS])
    torch.testing.assert_close(backbone(tokens(ROWS)), alone)


def test_padding_gets_no_gradient_from_the_features():
    encoder = Encoder()
    TransformerFeatures(encoder)(tokens(ROWS)).sum().backward()
    reached = encoder.embedding.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert reached == [2, 3, 5, 7, 8, 9]


def test_without_a_mask_every_position_counts():
    encoder = Encoder()
    batch = tokens([[5, 7], [3, 8]], mask=False)
    vectors = encoder.embedding.weight
    mean = torch.stack([(vectors[5] + vectors[7]) / 2, (vectors[3] + vectors[8]) / 2])
    torch.testing.assert_close(TransformerFeatures(encoder)(batch), mean)
    first = torch.stack([vectors[5], vectors[3]])
    torch.testing.assert_close(TransformerFeatures(encoder, pool="cls")(batch), first)


def test_a_long_bfloat16_text_is_averaged_as_precisely_as_bfloat16_allows():
    encoder = Encoder()
    batch = tokens([[5] * 301, [7] * 299])
    features = TransformerFeatures(encoder.bfloat16())(batch)
    assert features.dtype == torch.bfloat16
    torch.testing.assert_close(features, encoder.embedding.weight[[5, 7]], rtol=0, atol=0)


def test_a_text_without_tokens_has_zero_features():
    batch = {"input_ids": torch.zeros(1, 3).long(), "attention_mask": torch.zeros(1, 3).long()}
    assert TransformerFeatures(Encoder())(batch).tolist() == [[0.0, 0.0, 0.0, 0.0]]


def test_labels_never_reach_the_encoder_and_stay_in_the_batch():
    encoder = Encoder()
    batch = {**tokens(ROWS), "labels": torch.tensor([0, 1, 2])}
    TransformerFeatures(encoder)(batch)
    assert encoder.received == [["attention_mask", "input_ids"]]
    assert "labels" in batch


def test_any_mapping_is_a_batch():
    backbone = TransformerFeatures(Encoder())
    features = backbone(UserDict(tokens(ROWS)))
    torch.testing.assert_close(features, backbone(tokens(ROWS)), rtol=0, atol=0)


def test_a_tensor_batch_names_the_tokenizer():
    with pytest.raises(TypeError, match=r"batch must be a mapping .* got Tensor; .*tokenizer\("):
        TransformerFeatures(Encoder())(torch.zeros(2, 3))


def test_a_model_without_a_hidden_size_is_named():
    with pytest.raises(ValueError, match=r"config\.hidden_size, .*Linear has None; set"):
        TransformerFeatures(nn.Linear(2, 2))


def test_an_unknown_pool_is_named():
    with pytest.raises(ValueError, match="pool must be one of 'mean', 'cls', 'max', got 'sum'"):
        TransformerFeatures(Encoder(), pool="sum")


def test_a_model_with_a_head_is_refused():
    class Classifier(Encoder):
        def forward(self, **inputs):
            return SimpleNamespace(logits=torch.zeros(3, 2))

    with pytest.raises(TypeError, match=r"last_hidden_state, got .* from Classifier; .*AutoModel"):
        TransformerFeatures(Classifier())(tokens(ROWS))


def test_a_mask_of_another_shape_is_named():
    batch = {**tokens(ROWS), "attention_mask": torch.ones(3, 1, 4)}
    with pytest.raises(ValueError, match=r"attention_mask must have shape \(3, 4\),.*\(3, 1, 4\)"):
        TransformerFeatures(Encoder())(batch)


HUGGING_FACE = """
import torch

torch.set_num_threads(1)
if {vision}:
    from hma.extras import ensure_torchvision

    ensure_torchvision()
from transformers import BatchEncoding, BertConfig, BertModel

from hma.backbones.text import TransformerFeatures

torch.manual_seed(0)
config = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
)
model = BertModel(config).eval()
short, long = torch.tensor([[1, 5, 7]]), torch.tensor([[1, 9, 4, 6, 2]])
ids = torch.cat([torch.nn.functional.pad(short, (0, 2)), long])
batch = BatchEncoding({{"input_ids": ids, "attention_mask": (ids != 0).long()}})
batch["labels"] = torch.tensor([0, 1])
for pool in ("mean", "cls"):
    backbone = TransformerFeatures(model, pool=pool)
    assert backbone.feature_dim == 8
    with torch.no_grad():
        hidden = [model(input_ids=row).last_hidden_state[0] for row in (short, long)]
        expected = torch.stack([h.mean(dim=0) if pool == "mean" else h[0] for h in hidden])
        torch.testing.assert_close(backbone(batch), expected)
print("same")
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
def test_a_padded_bert_batch_gives_the_features_of_each_text_alone():
    vision = importlib.util.find_spec("torchvision") is not None
    program = [sys.executable, "-c", HUGGING_FACE.format(vision=vision)]
    run = subprocess.run(program, capture_output=True, text=True)
    assert run.stdout.strip() == "same", run.stderr
