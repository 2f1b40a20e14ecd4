"""The method written out naively: each row gets a copy of its own of all that it sees."""

import torch
from torch import Tensor

from hma.attention.block import MemoryRead
from hma.attention.hma import HMA
from hma.attention.linear import LinearRead
from hma.attention.reads import RealMemory, SyntheticMemory


def read(block: MemoryRead, tokens: Tensor, seen: Tensor) -> Tensor:
    """Let each of the tokens (B, D) read its copy of what it sees (B, N, D): Equation 2."""
    heads = (block.num_heads, block.dim // block.num_heads)
    q = block.to_queries(block.norm_queries(tokens)).unflatten(-1, (*heads, 1))  # (B, H, D/H, 1)
    both = block.to_keys_values(block.norm_memory(seen)).unflatten(-1, (2, *heads))
    k, v = both.permute(2, 0, 3, 1, 4)  # (B, N, 2, H, D/H) -> (B, H, N, D/H) each
    shares = (k @ q * block.scale).softmax(dim=2)  # (B, H, N, 1)
    if isinstance(block, LinearRead):
        kernel = seen_along(block, k) @ seen_along(block, q.mT).mT  # in place of exp(k q)
        shares = kernel / kernel.sum(dim=2, keepdim=True)
    if block.top_k is not None and block.top_k < seen.shape[1]:
        least = shares.topk(block.top_k, dim=2).values[:, :, -1:]
        shares = shares.where(shares >= least, 0)
    mixed = (shares.transpose(2, 3) @ v).flatten(1)  # (B, H, 1, D/H) -> (B, D)
    hidden = tokens + block.dropout(mixed)  # the residual is the query
    out: Tensor = hidden + block.feed_forward(block.norm_hidden(hidden))
    return out


def seen_along(block: LinearRead, rows: Tensor) -> Tensor:
    """Return positive random features of keys or queries, (..., D/H) to (..., R)."""
    rows = rows * block.scale**0.5
    return (rows @ block.directions.T - rows.square().sum(dim=-1, keepdim=True) / 2).exp()


def read_real(model: HMA, features: Tensor) -> Tensor:
    """Turn features (B, F) into tokens (B, W) that have read themselves and the queue."""
    tokens = narrowed(model, queries(model, features))
    if not isinstance(model.real, RealMemory):
        return tokens
    return read(model.real.read, tokens, beside(tokens[:, None], stored(model)))


def stored(model: HMA) -> Tensor:
    """Return the rows of the queue as tokens (N, W)."""
    assert model.real is not None
    queue = model.real.queue
    written = slice(min(int(queue.written), queue.size))
    if queue.keeps_label_values:
        past = torch.cat([queue.features[written], queue.label_values[written]], dim=1)
    else:
        past = joined(model, queue.features[written], queue.labels[written])  # (N, D)
    return narrowed(model, past)


@torch.no_grad()
def predict(model: HMA, features: Tensor, context: str = "batch") -> Tensor:
    """Return the logits (B, C) from nothing but the model's weights and buffers."""
    tokens = read_real(model, features)
    whole = model.config.batch_attention and context == "batch"
    own = tokens.expand(len(tokens), -1, -1) if whole else tokens[:, None]
    others = [read_real(model, model.anchors)] if context == "anchors" else []
    if model.synthetic is not None and model.synthetic.slots is not None:
        slots = joined(model, model.synthetic.slots, model.synthetic.classes)
        others.append(narrowed(model, slots))
    if model.joint is not None and model.real is not None:
        others.append(stored(model))
    if isinstance(model.synthetic, SyntheticMemory):
        tokens = read(model.synthetic.read, tokens, beside(own, *others))
    elif model.joint is not None:
        tokens = read(model.joint.read, tokens, beside(own, *others))
    if model.tokens.widen is not None:
        tokens = queries(model, features) + model.tokens.widen(tokens)
    part = {"features": slice(model.feature_dim), "label": slice(model.feature_dim, None)}
    logits: Tensor = model.head(tokens[:, part.get(model.config.readout, slice(None))])
    return logits


def queries(model: HMA, features: Tensor) -> Tensor:
    """Put the embedding of "unknown", the last row of the table, behind features (B, F)."""
    return joined(model, features, torch.full((len(features),), -1))


def narrowed(model: HMA, tokens: Tensor) -> Tensor:
    """Return tokens (N, D) at the width (N, W) that is read."""
    return tokens if model.tokens.narrow is None else model.tokens.narrow(tokens)


def joined(model: HMA, features: Tensor, labels: Tensor) -> Tensor:
    """Put the embeddings of labels (N,) behind features (N, F)."""
    table = model.tokens.table
    return features if table is None else torch.cat([features, table.weight[labels]], dim=1)


def beside(own: Tensor, *shared: Tensor) -> Tensor:
    """Repeat shared rows (N, D) for every row of the batch, behind its own (B, n, D)."""
    return torch.cat([own, *(rows.expand(len(own), -1, -1) for rows in shared)], dim=1)
