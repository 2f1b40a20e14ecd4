"""Rows told apart by what they hold: equal rows have equal numbers, whatever their labels."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from hma.data.task import Split

AT_ONCE = 256


def content_hashes(x: Any) -> Tensor:
    """Return a number for each row of a batch, ``(B,)``: rows that hold the same have the same.

    Args:
        x: What a backbone takes: a tensor, tensors by name with an ``attention_mask`` over padding,
            or a batch of graphs.

    Example:
        >>> one, two, three = content_hashes(torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]]))
        >>> bool(one == three), bool(one == two)
        (True, False)
    """
    hashes = []
    for row in _rows(x):
        digest = hashlib.blake2b(digest_size=8)
        for part in row:
            plain = part + 0.0 if part.is_floating_point() else part  # -0.0 is 0.0
            digest.update(f"{tuple(part.shape)}".encode() + plain.contiguous().numpy().tobytes())
        hashes.append(int.from_bytes(digest.digest(), "little", signed=True))
    return torch.tensor(hashes, dtype=torch.long)


def _rows(x: Any) -> Iterator[list[Tensor]]:
    if isinstance(x, Tensor):
        yield from ([row] for row in x.cpu())
    elif isinstance(x, Mapping):
        names = sorted(x)
        real = x.get("attention_mask")
        for place in range(len(x[names[0]])):
            rows = [x[name][place].cpu() for name in names]
            yield rows if real is None else [row[real[place].cpu().bool()] for row in rows]
    else:
        yield from _graphs(x)


def _graphs(batch: Any) -> Iterator[list[Tensor]]:
    """Yield nodes, ends of edges and what is at edges of each graph, which lie end to end."""
    nodes: list[int] = batch.ptr.diff().tolist()
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=len(nodes)).tolist()
    parts = [batch.x.split(nodes), batch.edge_index.split(edges, dim=1)]
    if batch.get("edge_attr") is not None:
        parts.append(batch.edge_attr.split(edges))
    for first, (own, ends, *more) in zip(batch.ptr[:-1], zip(*parts, strict=True), strict=True):
        yield [own, ends - first, *more]


def split_hashes(split: Split) -> Tensor:
    """Return the hash of each row of a split, ``(N,)``."""
    found = [torch.empty(0, dtype=torch.long)]
    if len(split):
        places = torch.split(torch.arange(len(split)), AT_ONCE)
        found = [content_hashes(split.batch(some).x) for some in places]
    return torch.cat(found)
