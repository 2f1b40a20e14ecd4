"""The real-memory read as the paper's text has it: the queue repeated for every sample.

It uses the weights of a real model and gives the same logits and gradients; only the order of
work differs. A test holds it to that, so the comparison is between two ways to compute one
function.
"""

import torch
from torch import Tensor

from hma.attention import MemoryRead
from hma.model import HMA


def classify_naively(model: HMA, features: Tensor) -> Tensor:
    """Return the logits of ``features``, each sample projecting a queue of its own.

    Args:
        model: An HMA in training mode with both memories and the default readout.
        features: ``(B, F)``.
    """
    assert model.real is not None
    assert model.synthetic is not None
    queue = model.real.queue
    tokens = model.tokens.mask(features)  # (B, F) -> (B, D)
    rows = model.tokens.label(queue.features, queue.labels)  # (M, D)
    tokens = _read_per_sample(model.real.read, tokens, rows, queue.filled())
    slots = model.synthetic.project(model.tokens)
    neighbours = model.config.batch_attention
    tokens = model.synthetic.read(tokens, slots, neighbours=neighbours)  # the same in both
    logits: Tensor = model.head(tokens)  # (B, D) -> (B, C)
    return logits


def _read_per_sample(read: MemoryRead, tokens: Tensor, rows: Tensor, filled: Tensor) -> Tensor:
    batch, width = len(tokens), read.dim // read.num_heads
    repeated = rows.expand(batch, -1, -1)  # (M, D) -> (B, M, D)
    seen = torch.cat([tokens[:, None], repeated], dim=1)  # (B, 1 + M, D)
    keys, values = (
        part.view(batch, -1, read.num_heads, width).transpose(1, 2)  # (B, H, 1 + M, D/H)
        for part in read.to_keys_values(read.norm_memory(seen)).chunk(2, dim=-1)
    )
    queries = read.to_queries(read.norm_queries(tokens)) * read.scale  # (B, D)
    queries = queries.view(batch, read.num_heads, 1, width)  # (B, H, 1, D/H)
    scores = queries @ keys.transpose(2, 3)  # (B, H, 1, 1 + M)
    visible = torch.cat([filled.new_ones(1), filled])  # (1 + M,)
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    mixed = (weights @ values).flatten(1)  # (B, H, 1, D/H) -> (B, D)
    hidden = tokens + read.dropout(mixed)
    out: Tensor = hidden + read.feed_forward(read.norm_hidden(hidden))
    return out
