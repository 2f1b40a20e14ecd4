"""How tokens read both memories: one after the other, as in the paper, or both at once."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hma.attention.block import MemoryRead
from hma.attention.config import HMAConfig
from hma.attention.linear import LinearRead
from hma.attention.tokens import LabelTokens
from hma.memory.distributed import draw_shared_number
from hma.memory.memories import LearnedRows, Memories, StoredRows
from hma.memory.projected import Nearest, Projected, Weights, split_columns
from hma.memory.rows import MemoryQueue
from hma.options.config import SlotInit
from hma.targets import Target


class Read(NamedTuple):
    """Tokens after both memories were read, and the attention that led there.

    Shape:
        - ``tokens``: ``(B, W)``.
        - ``real``, ``synthetic``: None where a read is off, or where it was not asked for them.
    """

    tokens: Tensor
    real: Weights | None
    synthetic: Weights | None


class RealMemory(StoredRows):
    """Past training rows; every token reads them beside itself, never beside its batch.

    Args:
        queue: Where the rows are kept; a queue of size 0 leaves each token to itself.
        read: The attention block.
    """

    def __init__(self, queue: MemoryQueue, read: MemoryRead) -> None:
        super().__init__(queue)
        self.read = read

    def forward(
        self, tokens: Tensor, memory: Projected | None, *, weights: bool = True
    ) -> tuple[Tensor, Weights | None]:
        """Return the tokens after they have read ``memory``, and where they looked."""
        result: tuple[Tensor, Weights | None] = self.read(
            tokens, memory, neighbours=False, nearest=self.nearest, weights=weights
        )
        return result

    def project(self, tokens: LabelTokens, labels_of: Tensor | None = None) -> Projected | None:
        """Return the whole queue as keys and values; places never written stay unseen."""
        if self.queue.size == 0:
            return None
        rows = tokens.of_queue(self.queue, labels_of)  # (M, W)
        return self.read.project(rows, bias=self.unseen().to(rows.dtype))


def drawn_alone(share: float, device: torch.device) -> Tensor | None:
    """Draw whether a training batch is read without neighbours; None where none ever is."""
    if not share:
        return None
    # DIFF[paper 3.2]: training always shows the batch there, so a row that is asked about by
    # itself comes as a surprise.
    return draw_shared_number(device) < share


class SyntheticMemory(LearnedRows):
    """Learnable rows that are read beside the batch.

    Args:
        target: What a label is; each of its prototypes has slots, as a class has.
        feature_dim: Width of a slot's free part, ``F``; its label part is embedded anew.
        slots_per_class: Slots of each class; 0 for attention between datapoints alone.
        read: The attention block.
        start: How slots start.
        alone_share: Share of the training batches that are read without neighbours.
    """

    def __init__(
        self,
        target: Target,
        feature_dim: int,
        slots_per_class: int,
        read: MemoryRead,
        start: SlotInit = "normal",
        alone_share: float = 0.0,
    ) -> None:
        super().__init__(target, feature_dim, slots_per_class, start)
        self.read = read
        self.alone_share = alone_share

    def forward(
        self, tokens: Tensor, memory: Projected | None, *, neighbours: bool, weights: bool = True
    ) -> tuple[Tensor, Weights | None]:
        """Return the tokens after they have read ``memory`` and maybe each other."""
        drawn = neighbours and self.training
        alone = drawn_alone(self.alone_share, tokens.device) if drawn else None
        result: tuple[Tensor, Weights | None] = self.read(
            tokens, memory, neighbours=neighbours, alone=alone, weights=weights
        )
        return result

    def project(self, tokens: LabelTokens, anchors: Tensor | None = None) -> Projected | None:
        """Return the slots, then the anchor tokens ``(A, W)`` if any, as keys and values."""
        rows = [part for part in (tokens.of_slots(self), anchors) if part is not None]
        return self.read.project(torch.cat(rows)) if rows else None


def read_in_turn(
    synthetic: LearnedRows | None,
    real: StoredRows | None,
    tokens: Tensor,
    memories: Memories,
    *,
    neighbours: bool,
    weights: bool,
) -> Read:
    """Let tokens ``(B, W)`` read the real memory, then the synthetic one and maybe each other."""
    stored = learned = None
    if isinstance(real, RealMemory):
        tokens, stored = real(tokens, memories.real, weights=weights)
    if isinstance(synthetic, SyntheticMemory):
        tokens, learned = synthetic(
            tokens, memories.synthetic, neighbours=neighbours, weights=weights
        )
    return Read(tokens, stored, learned)


def projected(
    real: StoredRows | None,
    synthetic: LearnedRows | None,
    tokens: LabelTokens,
    anchors: Tensor | None,
    labels_of: Tensor | None = None,
    hidden: Tensor | None = None,
) -> Memories:
    """Return both memories as keys and values; anchors read the real one first.

    Args:
        real, synthetic: The memories.
        tokens: Joins features and labels.
        anchors: Features of a support batch, ``(A, F)``, if there is one.
        labels_of: Places whose labels the rows take, ``(M,)``; their own if not given.
        hidden: Rows that are not there, as :meth:`Projected.hide` has it.
    """
    rows = real.project(tokens, labels_of) if isinstance(real, RealMemory) else None
    if rows is not None and hidden is not None:
        rows = rows.hide(hidden)
    if not isinstance(synthetic, SyntheticMemory):
        return Memories(rows, None)
    support = _as_tokens(anchors, tokens)
    if support is not None and isinstance(real, RealMemory):
        support, _ = real(support, rows, weights=False)
    return Memories(rows, synthetic.project(tokens, support))


def _as_tokens(anchors: Tensor | None, tokens: LabelTokens) -> Tensor | None:
    """Return anchors ``(A, F)`` as they are read, ``(A, W)``."""
    if anchors is None:
        return None
    if len(anchors) == 0:
        raise RuntimeError(
            "context='anchors' needs an anchor batch; call model.set_anchors(x) first"
        )
    return tokens.narrowed(tokens.mask(anchors))


class JointRead(nn.Module):
    r"""Let each token attend once, to itself or its batch and to all rows of both memories.

    .. math:: \mathrm{out} = \mathrm{MHA}(C, [C ; R ; Z ; A])

    Queue ``R``, slots ``Z`` and anchors ``A`` are rows of one memory, in this order.

    Args:
        read: The attention block.
        alone_share: Share of the training batches that are read without neighbours.
    """

    def __init__(self, read: MemoryRead, alone_share: float = 0.0) -> None:
        super().__init__()
        self.read = read
        self.alone_share = alone_share

    def project(
        self,
        stored: StoredRows | None,
        learned: LearnedRows | None,
        tokens: LabelTokens,
        anchors: Tensor | None,
        labels_of: Tensor | None = None,
        hidden: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> Memories:
        """Return all rows as keys and values, in the place of the real memory.

        Args:
            stored, learned: The memories.
            tokens: Makes tokens of rows.
            anchors: Features of a support batch, ``(A, F)``, if there is one.
            labels_of: Places whose labels stored rows take, ``(M,)``; their own if not given.
            hidden: Stored rows and slots that are not there, as :meth:`Projected.hide` has it.
        """
        past = None if stored is None else tokens.of_queue(stored.queue, labels_of)  # (M, W)
        slots = None if learned is None else tokens.of_slots(learned)  # (S, W)
        parts = past, slots, _as_tokens(anchors, tokens)
        rows = [part for part in parts if part is not None]
        if not rows:
            return Memories(None, None)
        together, bias = torch.cat(rows), None
        if stored is not None:  # no others can be hidden
            bias = together.new_zeros(len(together))
            bias[: stored.queue.size] = stored.unseen()
        memories = Memories(self.read.project(together, bias), None)
        without, slotless = hidden
        if slotless is not None:
            slotless = pad(slotless, (0 if past is None else len(past), 0))
        return memories.hide(rows=without).hide(rows=slotless)

    def forward(
        self,
        stored: StoredRows | None,
        tokens: Tensor,
        memories: Memories,
        *,
        neighbours: bool,
        weights: bool = True,
    ) -> Read:
        """Return the tokens after they have read all rows and maybe each other.

        Args:
            stored: The real memory, whose rows come first.
            tokens: Queries, ``(B, W)``.
            memories: What :meth:`project` made.
            neighbours: Show each row its whole batch, not itself alone.
            weights: Whether shares are asked for.
        """
        memory = memories.real
        drawn = neighbours and self.training
        alone = drawn_alone(self.alone_share, tokens.device) if drawn else None
        size = 0 if stored is None else stored.queue.size
        nearest: Nearest | None = None
        if stored is not None and stored.nearest is not None:
            nearest = partial(_with_the_rest, stored.nearest, size)
        read, found = self.read(
            tokens, memory, neighbours=neighbours, nearest=nearest, alone=alone, weights=weights
        )
        if found is None or memory is None:
            return Read(read, None, found)
        others = memory.keys.shape[1] - size
        chosen = found.memory.shape[-1] - others
        of_stored, of_others = split_columns(found.memory, [chosen, others])
        places = None if found.places is None else found.places[..., :chosen]
        first = None if stored is None else Weights(found.own, of_stored, places)
        return Read(read, first, Weights(found.own, of_others))


def real_memory(target: Target, feature_dim: int, config: HMAConfig) -> StoredRows | None:
    """Return the real memory of a configuration, or None where it has none."""
    if not (config.has_real_memory or config.empty_reads == "keep"):
        return None
    value_dim = config.label_dim if config.queue_labels == "frozen" else None
    queue = MemoryQueue(config.queue_size, feature_dim, target, value_dim)
    if config.stages == "one":
        return StoredRows(queue) if config.has_real_memory else None
    return RealMemory(queue, memory_read(feature_dim, config))


def synthetic_memory(target: Target, feature_dim: int, config: HMAConfig) -> LearnedRows | None:
    """Return the synthetic memory of a configuration, or None where it has none."""
    slots, start = config.slots_per_class, config.slot_init
    if config.stages == "one":
        return LearnedRows(target, feature_dim, slots, start) if slots else None
    if not (config.has_synthetic_memory or config.empty_reads == "keep"):
        return None
    read = memory_read(feature_dim, config)
    return SyntheticMemory(target, feature_dim, slots, read, start, config.alone_share)


def joint_read(feature_dim: int, config: HMAConfig) -> JointRead | None:
    """Return the one read of a configuration, or None where memories are read in turn."""
    if config.stages == "two":
        return None
    return JointRead(memory_read(feature_dim, config), config.alone_share)


def memory_read(feature_dim: int, config: HMAConfig) -> MemoryRead:
    """Return the attention block of a configuration."""
    dim = feature_dim + config.label_dim if config.width is None else config.width
    options: dict[str, Any] = {
        "dropout": config.dropout,
        "scale": config.scale,
        "gather_batch": config.gather_batch,
        "feed_forward": config.feed_forward,
    }
    if config.attention == "linear":
        return LinearRead(dim, config.num_heads, config.linear_features, **options)
    return MemoryRead(dim, config.num_heads, top_k=config.top_k, **options)


def _with_the_rest(
    nearest: Nearest, size: int, queries: Tensor, memory: Projected
) -> Tensor | None:
    """Return the places that ``nearest`` chooses of the first rows, and those of all others."""
    bias = None if memory.bias is None else memory.bias[:size]
    chosen = nearest(queries, Projected(memory.keys[:, :size], memory.values[:, :size], bias))
    if chosen is None:
        return None
    others = torch.arange(size, memory.keys.shape[1], device=chosen.device)
    return torch.cat([chosen, others.expand(*chosen.shape[:2], -1)], dim=-1)
