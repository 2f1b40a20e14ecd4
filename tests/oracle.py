"""The method written out naively: one query, one head, one memory row at a time."""

import math

import torch
from torch import Tensor

from hma.attention import MemoryRead
from hma.model import HMA


@torch.no_grad()
def read_one(read: MemoryRead, query: Tensor, seen: Tensor) -> Tensor:
    """One token after reading the rows ``seen`` (N, D); Eq. 2 with the residual on the query."""
    width = read.dim // read.num_heads
    keys_values = read.to_keys_values(read.norm_memory(seen))
    keys, values = keys_values[:, : read.dim], keys_values[:, read.dim :]
    q = read.to_queries(read.norm_queries(query))
    mixed = torch.zeros_like(query)
    for head in range(read.num_heads):
        part = slice(head * width, (head + 1) * width)
        scores = [float(q[part] @ key[part]) * read.scale for key in keys]
        weights = [math.exp(s - max(scores)) for s in scores]
        weights = [w / sum(weights) for w in weights]
        if read.top_k is not None and read.top_k < len(weights):
            least = sorted(weights, reverse=True)[read.top_k - 1]
            weights = [w if w >= least else 0.0 for w in weights]
        for weight, value in zip(weights, values, strict=True):
            mixed[part] += weight * value[part]
    hidden = query + mixed
    return hidden + read.feed_forward(read.norm_hidden(hidden))


@torch.no_grad()
def predict(model: HMA, features: Tensor, context: str = "batch") -> Tensor:
    """The logits of a model without dropout, from nothing but its weights and its buffers."""
    table = None if model.tokens.table is None else model.tokens.table.weight

    def token(row: Tensor, label: int) -> Tensor:
        return row if table is None else torch.cat([row, table[label]])

    queue = []
    if model.real is not None:
        store = model.real.queue
        for place in range(min(int(store.written), store.size)):
            if store.frozen_labels:
                queue.append(torch.cat([store.features[place], store.label_values[place]]))
            else:
                queue.append(token(store.features[place], int(store.labels[place])))

    def after_real(rows: Tensor) -> list[Tensor]:
        tokens = [token(row, -1) for row in rows]
        if model.real is None:
            return tokens
        return [read_one(model.real.read, own, torch.stack([own, *queue])) for own in tokens]

    tokens = after_real(features)
    if model.synthetic is not None:
        slots, per_class = [], model.config.slots_per_class
        if model.synthetic.slots is not None:
            slots = [token(s, i // per_class) for i, s in enumerate(model.synthetic.slots)]
        anchors = after_real(model.anchors) if context == "anchors" else []
        whole = model.config.batch_attention and context == "batch"
        tokens = [
            read_one(
                model.synthetic.read,
                own,
                torch.stack([*(tokens if whole else [own]), *slots, *anchors]),
            )
            for own in tokens
        ]
    width = model.feature_dim
    part = {"all": slice(None), "features": slice(width), "label": slice(width, None)}
    return torch.stack([model.head(own[part[model.config.readout]]) for own in tokens])
