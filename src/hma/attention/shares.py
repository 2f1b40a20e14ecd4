"""Where attention looked: weights of both reads, followed back to what entered the model."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hma.memory.attribution import Shares
from hma.memory.projected import Weights

if TYPE_CHECKING:
    from hma.attention.hma import HMA


def attention_shares(model: "HMA", features: Tensor, places: Tensor) -> tuple[Tensor, Shares]:
    """Return logits and the shares of attention, followed through the reads to their sources.

    The weights of both reads, averaged over heads, are followed back to what entered the model: a
    neighbour's share is split into what came from the neighbour itself and what it had read from
    the queue. Residual connections are not counted.

    Args:
        model: The model, in eval mode.
        features: What the backbone made, ``(B, F)``.
        places: Where the stored rows lie that are named, ``(N,)``.
    """
    context, trace = model.context, model.trace(features)
    anchors = model.anchors if context == "anchors" else model.anchors[:0]
    read_before = len(anchors) and model.joint is None
    anchor_trace = model.trace(anchors, context=context) if read_before else None
    count, size = len(features), 0 if model.real is None else model.real.queue.size
    own_real, queue_real = _first_read(trace.real, count, size, places)
    num_slots = 0 if model.synthetic is None else len(model.synthetic.classes)
    own, rest = _second_read(trace.synthetic, count, num_slots + len(anchors), features.device)
    slots, to_anchors = rest[:, :num_slots], rest[:, num_slots:]  # (B, S), (B, A)
    queue = queue_real if model.joint is not None else own @ queue_real  # (B, N)
    if anchor_trace is not None:
        own_anchor, queue_anchor = _first_read(anchor_trace.real, len(anchors), size, places)
        queue = queue + to_anchors @ queue_anchor
        to_anchors = to_anchors * own_anchor
    batch = own * own_real if model.joint is None else own  # (B, B): what came from each row itself
    itself = batch.diagonal().clone()  # (B,)
    batch = batch - torch.diag(itself)
    parts = [itself[:, None], queue, batch, to_anchors, slots]
    total = torch.cat(parts, dim=1).sum(dim=1, keepdim=True)  # below 1 where top_k dropped some
    itself, *others = (part / total for part in parts)
    return trace.logits, Shares(itself[:, 0], *others)


def _first_read(
    weights: Weights | None, count: int, size: int, places: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the share each row kept for itself ``(B,)`` and gave to queue rows ``(B, N)``."""
    if weights is None:
        return torch.ones(count, device=places.device), torch.zeros(count, 0, device=places.device)
    own = weights.own.float().mean(dim=0)[:, :1].sum(dim=1)  # (H, B, 1) -> (B,)
    return own, weights.over_rows(size)[:, places]  # (B, M) -> (B, N)


def _second_read(
    weights: Weights | None, count: int, rows: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the shares over the batch ``(B, B)`` and over slots and anchors ``(B, S + A)``."""
    if weights is None:
        return torch.eye(count, device=device), torch.zeros(count, 0, device=device)
    own = weights.own.float().mean(dim=0)  # (H, B, B or 1) -> (B, B or 1)
    if own.shape[1] != count or weights.own.shape[-1] == 1:
        own = torch.diag(own[:, 0])
    return own, weights.over_rows(rows)
