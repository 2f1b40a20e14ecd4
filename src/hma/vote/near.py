"""Solved votes of many rows: of each query, the rows near it are solved for."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from hma.memory.blocks import MOST_DISTANCES, in_blocks

NEAREST = 100
"""Rows that are solved for with each query."""


class Said(NamedTuple):
    """What rows near queries say.

    Shape:
        - ``places``, ``near`` ``(B, k)``; ``values`` ``(B, k, O)``: 0 for a row that does not
          speak.
    """

    places: Tensor
    near: Tensor
    values: Tensor

    def scores(self) -> Tensor:
        """Return the sum of what rows say, ``(B, O)``."""
        return (self.near[:, None] @ self.values)[:, 0]


@dataclass(frozen=True, eq=False)
class NearRows:
    r"""Stored rows, of which those near a query are solved for among themselves.

    .. math:: f(x) = \sum_{j \in R(x)} \kappa(x, j) A_j(x), \quad
        A(x) = (K_R + \lambda I)^{-1} (Y_R - \text{prior})

    with :math:`R(x)` the rows nearest to the query. Nothing is solved for before one asks, so a
    row that is taught or forgotten costs nothing, and without a row is what it is without it.

    Shape:
        - ``keys`` ``(N, E)``; ``left`` ``(N, O)``: labels without the prior, 0 where unknown;
          ``has``, ``known``, ``gamma`` and ``hidden`` as :class:`hma.vote.solved.SolvedRows`;
          ``penalty`` ``(N,)``: less for a row that counts more; ``gaps``: whether labels may have
          some.
    """

    keys: Tensor
    left: Tensor
    has: Tensor
    known: Tensor
    gamma: Tensor
    penalty: Tensor
    gaps: bool
    hidden: Tensor | None = None

    @cached_property
    def _lengths(self) -> Tensor:
        return in_blocks(lambda part: part.square().sum(dim=1), self.keys)  # (N,)

    @cached_property
    def _there(self) -> Tensor:
        return self.has.any(dim=1)

    def scores(self, keys: Tensor) -> Tensor:
        """Return the sum of what rows say, ``(B, E)`` to ``(B, O)``."""
        return torch.cat([one.scores() for one in self._each(keys)]).to(keys)

    def said(self, keys: Tensor) -> Said:
        """Return what rows near each query say."""
        return Said(*(torch.cat(parts) for parts in zip(*self._each(keys), strict=True)))

    def leave_one_out(self, wanted: Tensor, own: Tensor) -> Tensor:
        """Return what each of the rows at the places ``own`` is told by others, ``(B, O)``."""
        return torch.cat([one.scores() for one in self._each(self.keys[own], own)])

    def _each(self, keys: Tensor, own: Tensor | None = None) -> Iterator[Said]:
        """Yield what rows say, a few queries at a time."""
        size = self._at_once(keys.shape[1])
        for begin in range(0, max(len(keys), 1), size):
            some = slice(begin, begin + size)
            hidden = None if self.hidden is None else self.hidden[some]
            near = self._nearest(keys[some], None if own is None else own[some], hidden)
            yield self._solve(keys[some], *near)

    def _at_once(self, width: int) -> int:
        """Return how many queries are looked at together."""
        count = min(NEAREST, len(self.keys))
        return max(1, MOST_DISTANCES // max(len(self.keys), count * max(count, width)))

    def _nearest(
        self, keys: Tensor, own: Tensor | None = None, hidden: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return places of the rows nearest to queries, and whether a row is there, ``(B, k)``.

        Args:
            keys: Of the queries, ``(B, E)``.
            own: Place of the row that each query is, ``(B,)``, which it does without.
            hidden: Other such rows, ``(B, N)``.
        """
        lengths = keys.square().sum(dim=1)[:, None] + self._lengths
        apart = torch.addmm(lengths, keys, self.keys.T, alpha=-2).clamp(min=0)  # (B, N)
        apart = apart.masked_fill(~self._there, torch.inf)
        if hidden is not None:
            apart = apart.masked_fill(hidden, torch.inf)
        if own is not None:
            apart = apart.scatter(1, own[:, None], torch.inf)
        apart, places = apart.topk(min(NEAREST, len(self.keys)), largest=False)
        return places, apart < torch.inf

    def _solve(self, keys: Tensor, places: Tensor, there: Tensor) -> Said:
        """Return what the rows at ``places`` say, ``(B, k)``, of those that are there."""
        around = self.keys[places] - keys[:, None]  # (B, k, E): from the query, to round less
        near = torch.exp(-self.gamma * around.square().sum(dim=2)).double() * there
        kernel = self._kernel(around)
        has, left = self.has[places] & there[..., None], self.left[places]  # (B, k, O)
        penalty = self.penalty[places]
        values = torch.zeros_like(left)
        for columns, _ in outputs_by_rows(self.has, self.gaps):
            rows = has[..., columns.long().argmax()]  # (B, k)
            matrix = kernel * (rows[:, :, None] & rows[:, None])
            matrix.diagonal(dim1=1, dim2=2).copy_(1 + penalty)
            lower, _ = torch.linalg.cholesky_ex(matrix)  # a query with NaN says NaN, alone
            found = torch.cholesky_solve(left * rows[..., None], lower)
            values = torch.where(columns, found, values)
        return Said(places, near, values)

    def _kernel(self, keys: Tensor) -> Tensor:
        """Return the kernel between rows of each query, ``(B, k, E)`` to ``(B, k, k)``."""
        lengths = keys.square().sum(dim=2)  # (B, k)
        lengths = lengths[:, :, None] + lengths[:, None]
        apart = torch.baddbmm(lengths, keys, keys.transpose(1, 2), alpha=-2).clamp(min=0)
        return torch.exp(-self.gamma * apart).double()


def outputs_by_rows(has: Tensor, gaps: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield outputs that the same rows speak of, ``(O,)`` of bool, and those rows, ``(N,)``."""
    if not gaps:
        yield torch.ones_like(has[0]), has[:, 0]
    elif torch.compiler.is_compiling():  # how many kinds there are depends on the data
        yield from zip(torch.eye(has.shape[1]).bool().to(has), has.T, strict=True)
    else:
        kinds, kind_of = has.unique(dim=1, return_inverse=True)  # type: ignore[no-untyped-call]
        for kind, rows in enumerate(kinds.T):
            yield kind_of == kind, rows
