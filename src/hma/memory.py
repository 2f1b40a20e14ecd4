"""The two memories: real rows in a queue, synthetic rows that are learned."""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hma.attention import MemoryRead, Nearest, Projected, Weights
from hma.config import HMAConfig, SlotInit
from hma.distributed import share_first_rank, shared_chance
from hma.keyed_rows import KeyedRows
from hma.labelled_rows import Group, LabelledRows
from hma.linear_attention import LinearRead
from hma.queue import MemoryQueue
from hma.slots import FROM_NOTHING, Examples, Start, slot_start
from hma.targets import Target
from hma.tokens import LabelTokens


class StoredRows(nn.Module):
    """Past training rows, whoever reads them.

    Args:
        queue: Where the rows are kept.

    Attributes:
        nearest: Chooses the rows that each query reads, see :mod:`hma.retrieval`; None for all.
            It is a choice of the running program and not saved.
    """

    def __init__(self, queue: MemoryQueue) -> None:
        super().__init__()
        self.queue = queue
        self.nearest: Nearest | None = None

    def unseen(self) -> Tensor:
        """Return a bias that hides the places where no row is, ``(M,)``."""
        # DIFF[released code]: it starts from noise and attends to it; the paper's queue is empty.
        features = self.queue.features
        hidden = features.new_full((len(features),), float("-inf"))
        return hidden.masked_fill(self.queue.filled(), 0.0)

    def places(self, queries: Tensor, rows: Projected | LabelledRows) -> Tensor | None:
        """Return the places of the rows that ``nearest`` lets queries read; None for all."""
        placed = rows.placed if isinstance(rows, LabelledRows) else rows
        return None if self.nearest is None else self.nearest(queries, placed)

    def chosen(
        self, queries: Tensor, rows: Projected | LabelledRows
    ) -> tuple[Group, Tensor | None]:
        """Return the rows that queries read, and their places; None for all."""
        places = self.places(queries, rows)
        return (rows if places is None else rows.at(places)), places

    def as_tokens(self, tokens: LabelTokens, labels_of: Tensor | None = None) -> Tensor:
        """Return the whole queue as it is read, ``(M, W)``.

        Args:
            tokens: Joins features and labels.
            labels_of: Places whose labels the rows take, ``(M,)``; their own if not given.
        """
        order = slice(None) if labels_of is None else labels_of
        if self.queue.keeps_label_values:
            rows = tokens.join(self.queue.features, self.queue.label_values[order])  # (M, D)
        else:
            # DIFF[paper 3.2]: the paper stores label embeddings, which go stale while the table
            # trains; we store labels and embed them at every read.
            rows = tokens.label(self.queue.features, self.queue.labels[order])  # (M, D)
        return tokens.narrowed(rows)


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
        rows = self.as_tokens(tokens, labels_of)  # (M, W)
        return self.read.project(rows, bias=self.unseen().to(rows.dtype))


class LearnedRows(nn.Module):
    """Learnable rows, ``slots_per_class`` for each class, whoever reads them.

    Args:
        target: What a label is; each of its prototypes has slots, as a class has.
        feature_dim: Width of a slot, ``F``.
        slots_per_class: Slots of each class.
        start: How slots start, see :mod:`hma.slots`; by noise until there is data, if it needs any.
    """

    classes: Tensor
    labels: Tensor
    waiting: Tensor | None

    def __init__(
        self, target: Target, feature_dim: int, slots_per_class: int, start: SlotInit = "normal"
    ) -> None:
        super().__init__()
        self.start = start
        labels = target.prototypes().repeat_interleave(slots_per_class, dim=0)  # (S, ...)
        classes = torch.arange(len(target.prototypes())).repeat_interleave(slots_per_class)
        self.slots_per_class = slots_per_class
        self.slots: nn.Parameter | None = None
        if slots_per_class:
            self.slots = nn.Parameter(torch.zeros(len(labels), feature_dim))
        self.register_buffer("classes", classes, persistent=False)  # (S,)
        self.register_buffer("labels", labels, persistent=False)
        waits = bool(slots_per_class) and start not in FROM_NOTHING
        self.register_buffer("waiting", torch.tensor(True) if waits else None)
        self._warned = False

    def begin(self) -> None:
        """Give every slot a value while there is no data."""
        waits = self.waiting is not None
        self._fill(slot_start("normal" if waits else self.start), None)

    @torch.no_grad()
    def restart(self, start: Start, examples: Examples | None = None) -> None:
        """Give every slot a first value, see :mod:`hma.slots`; all ranks get that of the first."""
        self._fill(start, examples)
        if self.slots is not None:
            share_first_rank(self.slots)
        if self.waiting is not None:
            self.waiting.fill_(False)

    @torch.no_grad()
    def _fill(self, start: Start, examples: Examples | None) -> None:
        if self.slots is not None:
            self.slots.copy_(start(self.slots, self.classes, examples))

    def as_tokens(self, tokens: LabelTokens) -> Tensor | None:
        """Return the slots as they are read, ``(S, W)``; None where there are none."""
        if self.slots is None:
            return None
        return tokens.narrowed(tokens.label(self.slots, self.labels))

    @property
    def waits(self) -> bool:
        """Whether slots that are to start from data have been given none yet."""
        return self.waiting is not None and bool(self.waiting)

    def warn_if_waiting(self) -> None:
        """Say once that training goes on with slots that were to start from data."""
        if not self._warned and self.waits:
            warnings.warn(
                f"slot_init={self.start!r} needs rows and has been given none, so the slots start "
                "as noise; call model.start_slots(batches) before the first step",
                stacklevel=4,
            )
        self._warned = True

    def extra_repr(self) -> str:  # noqa: D102
        return f"slots are noise until {self.start!r} is given rows" if self.waits else ""


def drawn_alone(share: float, device: torch.device) -> Tensor | None:
    """Draw whether a training batch is read without neighbours; None where none ever is."""
    if not share:
        return None
    # DIFF[paper 3.2]: training always shows the batch there, so a row that is asked about by
    # itself comes as a surprise.
    return shared_chance(device) < share


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
        rows = [part for part in (self.as_tokens(tokens), anchors) if part is not None]
        return self.read.project(torch.cat(rows)) if rows else None


class Memories(NamedTuple):
    """Both memories as the reads see them now; None where there is nothing to read.

    Where one read serves both, ``real`` holds the rows of all, see :mod:`hma.joint`.
    """

    real: Projected | LabelledRows | None
    synthetic: Projected | LabelledRows | None

    def hiding(self, rows: Tensor | None = None, slots: Tensor | None = None) -> "Memories":
        """Return them without stored rows or slots, as :meth:`Projected.hiding` has it."""
        real, synthetic = self
        return Memories(
            real if real is None or rows is None else real.hiding(rows),
            synthetic if synthetic is None or slots is None else synthetic.hiding(slots),
        )


def real_memory(target: Target, feature_dim: int, config: HMAConfig) -> StoredRows | None:
    """Return the real memory of a configuration, or None where it has none."""
    if config.votes:
        rows = KeyedRows(config.queue_size, feature_dim, target)
        return StoredRows(rows) if config.has_real_memory else None
    if not (config.has_real_memory or config.empty_reads == "keep"):
        return None
    assert config.queue_size is not None
    value_dim = config.label_dim if config.queue_labels == "frozen" else None
    queue = MemoryQueue(config.queue_size, feature_dim, target, value_dim)
    if config.stages == "one":
        return StoredRows(queue) if config.has_real_memory else None
    return RealMemory(queue, memory_read(feature_dim, config))


def synthetic_memory(target: Target, feature_dim: int, config: HMAConfig) -> LearnedRows | None:
    """Return the synthetic memory of a configuration, or None where it has none."""
    if config.votes or config.stages == "one":
        slots = config.slots_per_class
        return LearnedRows(target, feature_dim, slots, config.slot_init) if slots else None
    if not (config.has_synthetic_memory or config.empty_reads == "keep"):
        return None
    read = memory_read(feature_dim, config)
    slots, start, alone = config.slots_per_class, config.slot_init, config.alone_share
    return SyntheticMemory(target, feature_dim, slots, read, start, alone)


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
