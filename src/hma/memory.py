"""The two memories: real rows in a queue, synthetic rows that are learned."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hma.attention import MemoryRead, Projected
from hma.config import SlotInit
from hma.queue import MemoryQueue
from hma.tokens import LabelTokens


class RealMemory(nn.Module):
    """Past training rows; every token reads them beside itself, never beside its batch.

    Args:
        queue: Where the rows are kept; a queue of size 0 leaves each token to itself.
        read: The attention block.
    """

    def __init__(self, queue: MemoryQueue, read: MemoryRead) -> None:
        super().__init__()
        self.queue = queue
        self.read = read

    def project(self, tokens: LabelTokens) -> Projected | None:
        """Return the whole queue as keys and values; places never written stay unseen."""
        if self.queue.size == 0:
            return None
        if self.queue.frozen_labels:
            rows = tokens.join(self.queue.features, self.queue.label_values)  # (M, D)
        else:
            # DIFF[paper 3.2]: the paper stores label embeddings, which go stale while the table
            # trains; we store class ids and embed them at every read.
            rows = tokens.label(self.queue.features, self.queue.labels)  # (M, D)
        # DIFF[released code]: it starts from noise and attends to it; the paper's queue is empty.
        unseen = torch.full_like(rows[:, 0], float("-inf")).masked_fill(self.queue.filled(), 0.0)
        return self.read.project(rows, bias=unseen)


class SyntheticMemory(nn.Module):
    """Learnable rows, ``slots_per_class`` for each class, read beside the batch.

    Args:
        num_labels: Classes that have slots.
        feature_dim: Width of a slot's free part, ``F``; its label part is embedded anew.
        slots_per_class: Slots of each class; 0 for attention between datapoints alone.
        slot_init: 'normal' or 'zeros'.
        read: The attention block.
    """

    classes: Tensor

    def __init__(
        self,
        num_labels: int,
        feature_dim: int,
        slots_per_class: int,
        slot_init: SlotInit,
        read: MemoryRead,
    ) -> None:
        super().__init__()
        self.slots_per_class = slots_per_class
        self.slot_init = slot_init
        self.slots: nn.Parameter | None = None
        if slots_per_class:
            self.slots = nn.Parameter(torch.empty(num_labels * slots_per_class, feature_dim))
            self.reset_slots()
        classes = torch.arange(num_labels).repeat_interleave(slots_per_class)  # (S,)
        self.register_buffer("classes", classes, persistent=False)
        self.read = read

    def reset_slots(self) -> None:
        """Start the slots anew."""
        if self.slots is None:
            return
        if self.slot_init == "zeros":
            nn.init.zeros_(self.slots)
        else:
            # DIFF[released code]: zeros there, so the slots of one class get the same gradient
            # and stay bit-identical for ever.
            nn.init.normal_(self.slots, std=0.02)

    def project(self, tokens: LabelTokens, anchors: Tensor | None = None) -> Projected | None:
        """Return the slots, then the anchor tokens ``(A, D)`` if any, as keys and values."""
        rows = [] if self.slots is None else [tokens.label(self.slots, self.classes)]  # (S, D)
        if anchors is not None:
            rows.append(anchors)
        return self.read.project(torch.cat(rows)) if rows else None


class Memories(NamedTuple):
    """Both memories as the reads see them now; None where there is nothing to read."""

    real: Projected | None
    synthetic: Projected | None


@dataclass(frozen=True)
class MemoryState:
    """What the memories hold now, copied out.

    Shape:
        - ``features`` ``(N, F)``, ``labels`` ``(N,)``, ``ids`` ``(N,)``: queue rows, oldest first;
          -1 stands for a class or id that was never given.
        - ``slots`` ``(S, F)``, ``slot_classes`` ``(S,)``.
        - ``anchors`` ``(A, F)``.
    """

    features: Tensor
    labels: Tensor
    ids: Tensor
    slots: Tensor
    slot_classes: Tensor
    anchors: Tensor
    frozen: bool
