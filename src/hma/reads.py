"""How tokens read both memories: one after the other, as in the paper, or both at once."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hma.attention import MemoryRead, Nearest, Projected, Weights, parted
from hma.config import HMAConfig
from hma.memory import (
    LearnedRows,
    Memories,
    RealMemory,
    StoredRows,
    SyntheticMemory,
    drawn_alone,
    memory_read,
)
from hma.tokens import LabelTokens


class Read(NamedTuple):
    """Tokens after both memories were read, and the attention that led there.

    Shape:
        - ``tokens``: ``(B, W)``.
        - ``real``, ``synthetic``: None where a read is off, or where it was not asked for them.
    """

    tokens: Tensor
    real: Weights | None
    synthetic: Weights | None


class Trace(NamedTuple):
    """A prediction and the attention of both reads that led to it; None where a read is off."""

    logits: Tensor
    real: Weights | None
    synthetic: Weights | None


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
        hidden: Rows that are not there, as :meth:`Projected.hiding` has it.
    """
    rows = real.project(tokens, labels_of) if isinstance(real, RealMemory) else None
    if rows is not None and hidden is not None:
        rows = rows.hiding(hidden)
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
            hidden: Stored rows and slots that are not there, as :meth:`Projected.hiding` has it.
        """
        past = None if stored is None else stored.as_tokens(tokens, labels_of)  # (M, W)
        slots = None if learned is None else learned.as_tokens(tokens)  # (S, W)
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
        return memories.hiding(rows=without).hiding(rows=slotless)

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
        of_stored, of_others = parted(found.memory, [chosen, others])
        places = None if found.places is None else found.places[..., :chosen]
        first = None if stored is None else Weights(found.own, of_stored, places)
        return Read(read, first, Weights(found.own, of_others))


def joint_read(feature_dim: int, config: HMAConfig) -> JointRead | None:
    """Return the one read of a configuration, or None where memories are read in turn."""
    if config.votes or config.stages == "two":
        return None
    return JointRead(memory_read(feature_dim, config), config.alone_share)


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
