"""Many stored rows that vote: their keys are at hand, ballots are made of labels that are read."""

from typing import NamedTuple

import torch
from torch import Tensor

from hma.attention import Chosen, Projected
from hma.many_rows import blocks
from hma.targets import Target


class LabelledRows(NamedTuple):
    """Rows as :class:`hma.attention.Projected` has them, with labels instead of values.

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

    def mixed(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of ballots, ``(1, B, M)`` to ``(1, B, V)``."""
        parts = [weights[..., part] @ self._ballots(part) for part in blocks(len(self.labels))]
        return torch.stack(parts).sum(dim=0)

    def hiding(self, hidden: Tensor) -> "LabelledRows":
        """Return the rows without those where ``hidden``, as :meth:`Projected.hiding` has it."""
        return self._replace(placed=self.placed.hiding(hidden))

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
