"""The method written out naively: each row gets a copy of its own of all that it sees."""

import torch
from torch import Tensor

from hma.attention import MemoryRead
from hma.memory import RealMemory, SyntheticMemory
from hma.model import HMA


def read(block: MemoryRead, tokens: Tensor, seen: Tensor) -> Tensor:
    """Let each of the tokens (B, D) read its copy of what it sees (B, N, D): Equation 2."""
    heads = (block.num_heads, block.dim // block.num_heads)
    q = block.to_queries(block.norm_queries(tokens)).unflatten(-1, (*heads, 1))  # (B, H, D/H, 1)
    both = block.to_keys_values(block.norm_memory(seen)).unflatten(-1, (2, *heads))
    k, v = both.permute(2, 0, 3, 1, 4)  # (B, N, 2, H, D/H) -> (B, H, N, D/H) each
    shares = (k @ q * block.scale).softmax(dim=2)  # (B, H, N, 1)
    if block.top_k is not None and block.top_k < seen.shape[1]:
        least = shares.topk(block.top_k, dim=2).values[:, :, -1:]
        shares = shares.where(shares >= least, 0)
    mixed = (shares.transpose(2, 3) @ v).flatten(1)  # (B, H, 1, D/H) -> (B, D)
    hidden = tokens + block.dropout(mixed)  # the residual is the query
    out: Tensor = hidden + block.feed_forward(block.norm_hidden(hidden))
    return out


def read_real(model: HMA, features: Tensor) -> Tensor:
    """Turn features (B, F) into tokens (B, D) that have read themselves and the queue."""
    unknown = torch.full((len(features),), -1)  # the last row of the label table
    tokens = joined(model, features, unknown)
    if not isinstance(model.real, RealMemory):
        return tokens
    queue = model.real.queue
    written = slice(min(int(queue.written), queue.size))
    if queue.keeps_label_values:
        past = torch.cat([queue.features[written], queue.label_values[written]], dim=1)
    else:
        past = joined(model, queue.features[written], queue.labels[written])  # (N, D)
    return read(model.real.read, tokens, beside(tokens[:, None], past))


@torch.no_grad()
def predict(model: HMA, features: Tensor, context: str = "batch") -> Tensor:
    """Return the logits (B, C) from nothing but the model's weights and buffers."""
    tokens = read_real(model, features)
    if isinstance(model.synthetic, SyntheticMemory):
        whole = model.config.batch_attention and context == "batch"
        own = tokens.expand(len(tokens), -1, -1) if whole else tokens[:, None]
        others = [read_real(model, model.anchors)] if context == "anchors" else []
        if model.synthetic.slots is not None:
            others.append(joined(model, model.synthetic.slots, model.synthetic.classes))
        tokens = read(model.synthetic.read, tokens, beside(own, *others))
    part = {"features": slice(model.feature_dim), "label": slice(model.feature_dim, None)}
    logits: Tensor = model.head(tokens[:, part.get(model.config.readout, slice(None))])
    return logits


def joined(model: HMA, features: Tensor, labels: Tensor) -> Tensor:
    """Put the embeddings of labels (N,) behind features (N, F)."""
    table = model.tokens.table
    return features if table is None else torch.cat([features, table.weight[labels]], dim=1)


def beside(own: Tensor, *shared: Tensor) -> Tensor:
    """Repeat shared rows (N, D) for every row of the batch, behind its own (B, n, D)."""
    return torch.cat([own, *(rows.expand(len(own), -1, -1) for rows in shared)], dim=1)
