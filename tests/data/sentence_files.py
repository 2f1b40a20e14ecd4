"""Sentences with heads and labels on disk, and a tiny encoder that reads them."""

import json

import torch

from hma.extras import ensure_torchvision

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{one}" for one in LETTERS)]
LINES = [
    {"tokens": ["a", "good", "film"], "heads": [2, 2, 2], "label": 1},
    {"tokens": ["bad"], "heads": [0], "label": 0},
    {"tokens": ["it", "is", "not", "a", "film"], "heads": [1, 1, 1, 4, 1], "label": 0},
    {"tokens": ["so", "bad", ".", "so", "good"], "heads": [1, 1, 1, 4, 4], "label": 1},
]


def written(file, lines=LINES):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def tiny_encoder(folder, seed=3, positions=64):
    """A random BERT whose pieces are single letters, as ``save_pretrained`` leaves it."""
    ensure_torchvision()
    import transformers

    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=positions,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    model.save_pretrained(folder)
    vocabulary = {word: place for place, word in enumerate(WORDS)}
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    return model
