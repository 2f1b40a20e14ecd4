"""Rows that keys are learned of: what keys are made of, held, or of many rows made when asked."""

import torch
from torch import Tensor

from hma.memory.blocks import blocks, in_blocks, is_large
from hma.targets import Target
from hma.vote.learning_vote import keys_of_normalised, normalised, used_columns
from hma.vote.read import VotingRead


class RowsInView:
    """Rows that do not learn, normalised.

    Args:
        vote: Whose keys.
        features: ``(N, F)``.

    Attributes:
        columns: How many of the first columns are looked at; see :func:`use_the_same_columns`.
    """

    def __init__(self, vote: VotingRead, features: Tensor) -> None:
        self.vote, self.features = vote, features
        self.made = None if is_large(len(features)) else normalised(vote, features)
        self.columns = features.shape[1] - vote.first

    def largest(self) -> Tensor:
        """Return the largest size in each column, ``(E,)``."""
        parts = blocks(len(self.features))
        every = [self._normalised(part).abs().amax(dim=0) for part in parts]
        return torch.stack(every).amax(dim=0)

    def use(self, columns: int) -> None:
        """Look at the first columns alone."""
        self.columns = columns
        if self.made is not None:
            self.made = self.made[:, :columns].contiguous()

    def at(self, places: Tensor) -> Tensor:
        """Return rows, ``(n, E)``."""
        if self.made is not None:
            return self.made.index_select(0, places)
        rows = self.features.index_select(0, places)
        return normalised(self.vote, rows)[:, : self.columns]

    def keys(self, places: Tensor | None = None) -> Tensor:
        """Return where rows lie now, ``(n, K)``; all of them if no places are given."""
        if places is not None:
            return keys_of_normalised(self.vote, self.at(places))
        if self.made is not None:
            return keys_of_normalised(self.vote, self.made)
        return in_blocks(self.keys, torch.arange(len(self.features), device=self.features.device))

    def _normalised(self, part: slice) -> Tensor:
        return normalised(self.vote, self.features[part]) if self.made is None else self.made[part]


def use_the_same_columns(views: list[RowsInView]) -> None:
    """Leave out the last columns, where these are 0 in all rows of all views."""
    used = used_columns([view.largest() for view in views if len(view.features)])
    for view in views:
        view.use(used)


class BallotsInView:
    """Ballots of rows that do not learn.

    Args:
        target: Makes them.
        labels: As they are stored, ``(N, ...)``.
        dtype: Their number format.
    """

    def __init__(self, target: Target, labels: Tensor, dtype: torch.dtype) -> None:
        self.target, self.labels, self.dtype = target, labels, dtype
        self.made = None if is_large(len(labels)) else target.ballots(labels).to(dtype)

    def at(self, places: Tensor) -> Tensor:
        """Return the ballots of rows, ``(n, V)``."""
        if self.made is not None:
            return self.made.index_select(0, places)
        return self.target.ballots(self.labels[places]).to(self.dtype)
