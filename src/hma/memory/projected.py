"""Rows as a read sees them: keys, values, and what hides or chooses rows."""

from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from hma.memory.blocks import blocks
from hma.targets import Target


class Projected(NamedTuple):
    """Memory rows as one read sees them, shared by every query of a batch.

    Shape:
        - ``keys``, ``values``: ``(H, N, D / H)``.
        - ``bias``: ``(N,)`` or ``(B, N)``, added to the scores: 0 to see a row, minus infinity
          not to.
        - ``summary``: what a linear read knows of the rows, see :mod:`hma.attention.linear`.
    """

    keys: Tensor
    values: Tensor
    bias: Tensor | None = None
    summary: "Projected | None" = None

    def scores(self, queries: Tensor) -> Tensor:
        """Return how well each query fits each row, ``(H, B, D/H)`` to ``(H, B, N)``."""
        scores = queries @ self.keys.transpose(1, 2)
        if self.bias is not None:
            scores += self.bias
        return scores

    def mix(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of values, ``(H, B, N)`` to ``(H, B, D/H)``."""
        return weights @ self.values

    def hide(self, hidden: Tensor) -> "Projected":
        """Return the rows without the first ones where ``hidden``: ``(K,)``, or ``(B, K)`` each."""
        bias = self.keys.new_zeros(self.keys.shape[1]) if self.bias is None else self.bias
        bias = bias.expand(*hidden.shape[:-1], -1).clone()
        bias[..., : hidden.shape[-1]].masked_fill_(hidden, float("-inf"))
        return self._replace(bias=bias, summary=None)

    def at(self, places: Tensor) -> "Chosen":
        """Return the rows that each query of each head was given, ``(H, B, K)``."""
        heads = torch.arange(len(self.keys), device=places.device)[:, None, None]
        bias = None if self.bias is None else self.bias[places]
        return Chosen(self.keys[heads, places], self.values[heads, places], bias)


class Chosen(NamedTuple):
    """Memory rows of which each query sees ``K`` of its own.

    Shape:
        - ``keys``, ``values``: ``(H, B, K, D / H)``; ``bias``: ``(H, B, K)``.
    """

    keys: Tensor
    values: Tensor
    bias: Tensor | None

    def scores(self, queries: Tensor) -> Tensor:
        """Return how well each query fits each of its rows, ``(H, B, K)``."""
        scores = (self.keys @ queries[..., None])[..., 0]
        return scores if self.bias is None else scores + self.bias

    def mix(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of values, ``(H, B, K)`` to ``(H, B, D/H)``."""
        return (weights[:, :, None] @ self.values)[:, :, 0]


class LabelledRows(NamedTuple):
    """Rows as :class:`Projected` has them, with labels instead of values.

    A ballot is as wide as there are classes, so those of all rows are never held at once.

    Args:
        placed: Keys ``(1, M, K)`` and bias of the rows; its values are not looked at.
        labels: As they are stored, ``(M, ...)``.
        target: Makes ballots of labels.
    """

    placed: Projected
    labels: Tensor
    target: Target

    @property
    def keys(self) -> Tensor:
        """Where the rows lie, ``(1, M, K)``."""
        return self.placed.keys

    @property
    def bias(self) -> Tensor | None:
        """What is added to scores, ``(M,)`` or ``(B, M)``."""
        return self.placed.bias

    @property
    def differ(self) -> bool:
        """Whether other rows are hidden of each query."""
        return self.bias is not None and self.bias.dim() == 2

    def scores(self, queries: Tensor) -> Tensor:
        """Return how near each row is to each query, ``(1, B, K)`` to ``(1, B, M)``."""
        return self.placed.scores(queries)

    def mix(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of ballots, ``(1, B, M)`` to ``(1, B, V)``."""
        parts = [weights[..., part] @ self._ballots(part) for part in blocks(len(self.labels))]
        return torch.stack(parts).sum(dim=0)

    def hide(self, hidden: Tensor) -> "LabelledRows":
        """Return the rows without those where ``hidden``, as :meth:`Projected.hide` has it."""
        return self._replace(placed=self.placed.hide(hidden))

    def at(self, places: Tensor) -> Chosen:
        """Return the rows that each query was given, ``(1, B, K)``."""
        near, bias = places[0], self.placed.bias  # (B, K)
        if bias is not None:
            bias = bias[places] if bias.dim() == 1 else bias.gather(1, near)[None]
        ballots = self._ballots(near.flatten()).view(1, *near.shape, -1)
        return Chosen(self.keys[0][places], ballots, bias)

    def _ballots(self, places: Tensor | slice) -> Tensor:
        return self.target.ballots(self.labels[places]).to(self.keys.dtype)


Group = Projected | LabelledRows | Chosen
"""Rows that vote: the same for all queries, or of each query its own."""


class Nearest(Protocol):
    """Decides which rows each query reads, before the softmax; see :mod:`hma.vote.search`."""

    def __call__(self, queries: Tensor, memory: Projected) -> Tensor | None:
        """Return places of rows, ``(H, B, K)``, for queries ``(H, B, D/H)``; None for all rows."""
        ...


class Weights(NamedTuple):
    """How a read spent its attention.

    Shape:
        - ``own``: ``(H, B, B)`` over the batch, or ``(H, B, 1)`` where a row sees only itself.
        - ``memory``: ``(H, B, K)``; with ``own`` it sums to 1 over the last axis.
        - ``places``: ``(H, B, K)``, which memory rows these are; None for all, in order.
    """

    own: Tensor
    memory: Tensor | None
    places: Tensor | None = None

    def over_rows(self, count: int) -> Tensor:
        """Return the share of each of ``count`` memory rows, mean over heads, ``(B, N)``."""
        if self.memory is None:
            return self.own.new_zeros(self.own.shape[1], count).float()
        memory = self.memory.float()
        if self.places is None:
            return memory.mean(dim=0)  # (H, B, N) -> (B, N)
        shares = memory.new_zeros(memory.shape[1], count)
        for places, weights in zip(self.places, memory, strict=True):
            shares.scatter_add_(1, places, weights / len(memory))
        return shares


def split_columns(weights: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return columns in groups of ``sizes``, ``(..., N)`` to ``(..., size)`` each."""
    if torch.compiler.is_compiling():  # inductor of torch 2.13 gets gradients of a split wrong
        ends = list(accumulate(sizes))
        return [weights[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]
    # not slices: the backward of each would fill a whole tensor with zeros
    return list(torch.split(weights, sizes, dim=-1))
