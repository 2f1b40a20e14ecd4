"""The factor of a kernel matrix: rows are added to it and taken from it, and it is solved with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

MOST_GONE = 32
"""Rows that a factor may hold though they are gone; with more a new one is made."""
MOST_BESIDE = 64
"""Rows that lie beside a factor before they become part of it."""
ROUNDING = 1e4
"""How far a key may lie from where it lay, in units of its number format."""
ODD = 0x1E3779B97F4A7C15


def gaussian(first: Tensor, second: Tensor, gamma: Tensor) -> Tensor:
    """Return ``exp(-gamma |a - b|²)`` of all pairs, ``(B, N)``."""
    return torch.exp(-gamma * squared_distances(first, second))


def squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """Return ``|a - b|²`` of all pairs, ``(B, E)`` and ``(N, E)`` to ``(B, N)``; never below 0."""
    lengths = first.square().sum(dim=1)[:, None] + second.square().sum(dim=1)
    return torch.addmm(lengths, first, second.T, alpha=-2).clamp(min=0)


def fingerprints(features: Tensor, weight: Tensor) -> Tensor:
    """Return a number for each row that tells it from all others, ``(N, F)`` to ``(N,)``.

    Rows alike to the last bit get different ones, by how many of them came before.
    """
    bits = torch.cat([features, weight.to(features)[:, None]], dim=1)
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[bits.element_size()]
    draw = torch.Generator().manual_seed(0)
    odd = 2 * torch.randint(-(2**62), 2**62, bits.shape[1:], generator=draw) + 1
    found = (bits.view(whole).long() * odd.to(bits.device)).sum(dim=1)  # modulo 2^64
    ordered, at = found.sort(stable=True)
    step = torch.arange(len(found), device=found.device)
    begins = torch.where(ordered == ordered.roll(1), 0, step).cummax(dim=0).values
    return found.scatter(0, at, ordered + ODD * (step - begins))


@dataclass(frozen=True, eq=False)
class Factor:
    r"""The factor :math:`U^T U = K + \Lambda` of rows, in an order of its own.

    Adding a row to ``N`` takes ``O(N²)``: another column. So does taking one out: the row stays in
    the factor, and what rows are wanted to say is chosen so that it says nothing. Both are as exact
    as a new factor, which takes ``O(N³)``. Nothing is changed in place.

    Shape:
        - ``names`` ``(N,)``: fingerprints of the rows; ``keys`` ``(N, E)``: where they lie;
          ``gamma`` ``()``; in float64 the columns of ``U``: ``upper`` ``(n, n)`` of the first rows,
          ``beside`` ``(n, N - n)`` and ``corner`` ``(N - n, N - n)`` of those that were added.
        - ``gone``: places of rows that were taken out.
    """

    names: Tensor
    keys: Tensor
    gamma: Tensor
    upper: Tensor
    beside: Tensor
    corner: Tensor
    gone: Tensor

    @classmethod
    def of(
        cls,
        names: Tensor,
        keys: Tensor,
        penalty: Tensor,
        gamma: Tensor,
        there: Tensor | None = None,
    ) -> Self:
        """Return the factor of rows with a penalty each, ``(N,)``; see :func:`cholesky`."""
        upper = cholesky(keys, penalty, gamma, there=there)
        none = upper.new_empty(len(upper), 0)
        return cls(names, keys, gamma, upper, none, none[:0], names[:0])

    def followed_by(self, names: Tensor, keys: Tensor, penalty: Tensor) -> Self:
        """Return the factor of other rows, by way of those that both have."""
        gone = (~torch.isin(self.names, names)).nonzero()[:, 0]
        new = ~torch.isin(names, self.names)
        if len(gone) > MOST_GONE or len(gone) == len(self.names) or not self._lies(names, keys):
            return self.of(names, keys, penalty, self.gamma)
        found = replace(self, gone=gone)
        return found.with_rows(names[new], keys[new], penalty[new]) if bool(new.any()) else found

    def differs(self, names: Tensor) -> int:
        """Return how many rows one of them has and the other has not."""
        both = torch.isin(self.names, names).sum()
        return int(len(self.names) + len(names) - 2 * both)

    def _lies(self, names: Tensor, keys: Tensor) -> bool:
        """Return whether rows lie where they lay."""
        at, both = self._find(names)
        apart, far = (keys[at[both]] - self.keys[both]).abs(), 1 + keys.abs().max()
        return bool((apart <= ROUNDING * torch.finfo(keys.dtype).eps * far).all())

    def _find(self, names: Tensor) -> tuple[Tensor, Tensor]:
        """Return where each row of the factor is among ``names``, and whether it is there."""
        ordered, at = names.sort()
        found = torch.searchsorted(ordered, self.names).clamp(max=len(names) - 1)
        return at[found], ordered[found] == self.names

    def places(self, names: Tensor) -> Tensor:
        """Return where each of the rows ``names`` is in the factor, ``(n,)``."""
        ordered, at = self.names.sort()
        return at[torch.searchsorted(ordered, names)]

    def with_rows(self, names: Tensor, keys: Tensor, penalty: Tensor) -> Self:
        """Return the factor with rows beside the others."""
        held, count = len(self.upper), len(self.corner) + len(names)
        between = gaussian(self.keys.double(), keys.double(), self.gamma.double())
        column = self._half(between)
        corner = self.corner.new_zeros(count, count)
        corner[: len(self.corner), : len(self.corner)] = self.corner
        corner[: len(self.corner), len(self.corner) :] = column[held:]
        corner[len(self.corner) :, len(self.corner) :] = cholesky(
            keys, penalty, self.gamma, column.T @ column
        )
        found = replace(
            self,
            names=torch.cat([self.names, names]),
            keys=torch.cat([self.keys, keys]),
            beside=torch.cat([self.beside, column[:held]], dim=1),
            corner=corner,
        )
        return found if count <= MOST_BESIDE else found._joined()

    def _joined(self) -> Self:
        """Return the same with all columns in one."""
        held, count = len(self.upper), len(self.names)
        upper = self.upper.new_zeros(count, count)
        upper[:held, :held], upper[:held, held:] = self.upper, self.beside
        upper[held:, held:] = self.corner
        none = upper.new_empty(count, 0)
        return replace(self, upper=upper, beside=none, corner=none[:0])

    def _half(self, wanted: Tensor) -> Tensor:
        """Return ``U^-T wanted``, ``(N, O)``."""
        held = len(self.upper)
        above = torch.linalg.solve_triangular(self.upper.T, wanted[:held], upper=False)
        below = wanted[held:] - self.beside.T @ above
        return torch.cat([above, torch.linalg.solve_triangular(self.corner.T, below, upper=False)])

    def _whole(self, wanted: Tensor) -> Tensor:
        """Return ``(U^T U)^-1 wanted``, ``(N, O)``, as if no row were gone."""
        half, held = self._half(wanted), len(self.upper)
        below = torch.linalg.solve_triangular(self.corner, half[held:], upper=True)
        above = half[:held] - self.beside @ below
        return torch.cat([torch.linalg.solve_triangular(self.upper, above, upper=True), below])

    @cached_property
    def _columns(self) -> Tensor:
        """Columns of the inverse at rows that are gone, ``(N, R)``."""
        return self._whole(self._unit(self.gone))

    def _unit(self, places: Tensor) -> Tensor:
        unit = self.upper.new_zeros(len(self.names), len(places))
        unit[places, torch.arange(len(places), device=places.device)] = 1.0
        return unit

    def solve(self, names: Tensor, wanted: Tensor) -> Tensor:
        r"""Return what makes rows say what is wanted of them, ``(n, O)``.

        With :math:`G` the inverse and :math:`R` rows that are gone: :math:`A - G_R G_{RR}^{-1} A_R`
        says nothing by these, and is what the others say without them.

        Args:
            names: All rows that are not gone.
            wanted: Of these, ``(n, O)``.
        """
        places = self.places(names)
        every = wanted.new_zeros(len(self.names), wanted.shape[1])
        every[places] = wanted
        said = self._whole(every)
        if len(self.gone):
            inner = self._columns[self.gone]
            said = said - self._columns @ torch.linalg.solve(inner, said[self.gone])
        return said[places]

    def inverse(self, names: Tensor) -> Tensor:
        """Return the inverse of the kernel matrix of these rows, ``(n, n)``."""
        places = self.places(names)
        whole = torch.cholesky_inverse(self._joined().upper, upper=True)[places][:, places]
        if len(self.gone):
            lost = self._columns[places]
            whole -= lost @ torch.linalg.solve(self._columns[self.gone], lost.T)
        return whole

    def inverse_diagonal(self, names: Tensor) -> Tensor:
        """Return the diagonal of that inverse at some of the rows, ``(n,)``."""
        places = self.places(names)
        whole = self._half(self._unit(places)).square().sum(dim=0)
        if not len(self.gone):
            return whole
        lost = self._columns[places]
        found: Tensor = whole - (lost * torch.linalg.solve(self._columns[self.gone], lost.T).T).sum(
            dim=1
        )
        return found


def cholesky(
    keys: Tensor,
    penalty: Tensor,
    gamma: Tensor,
    less: Tensor | float = 0.0,
    there: Tensor | None = None,
) -> Tensor:
    """Return the upper Cholesky factor of the kernel with its penalty in float64, ``(N, N)``.

    Args:
        keys: ``(N, E)``.
        penalty: Of each row, ``(N,)``.
        gamma: Of the kernel.
        less: What is taken from the matrix, ``(N, N)``.
        there: Rows that are there, ``(N,)``; the others stand apart. None for all.
    """
    kernel = gaussian(keys.double(), keys.double(), gamma.double())
    if there is not None:
        kernel = kernel * (there[:, None] & there)
    kernel.fill_diagonal_(1.0)
    kernel.diagonal().add_(penalty.double())
    lower: Tensor = torch.linalg.cholesky(kernel - less)
    upper: Tensor = lower.T.contiguous()
    return upper


class KeptFactors:
    """Factors as they were last needed, of which the next ones are made.

    A copy of a model begins without.
    """

    def __init__(self) -> None:
        self._held: tuple[list[Tensor], list[Factor]] = ([], [])

    def __reduce__(self) -> tuple[Callable[[], "KeptFactors"], tuple[()]]:
        return KeptFactors, ()

    def get(self, behind: Sequence[Tensor]) -> list[Factor]:
        """Return the factors, if what decides about them beside the rows is as it was."""
        then, factors = self._held
        same = len(then) == len(behind) and all(map(_alike, then, behind))
        return factors if same else []

    def keep(self, behind: Sequence[Tensor], factors: list[Factor]) -> None:
        """Keep factors for what decides about them."""
        self._held = [one.detach().clone() for one in behind], factors

    def clear(self) -> bool:
        """Forget the factors, and return whether there were any."""
        there, self._held = bool(self._held[1]), ([], [])
        return there


def _alike(first: Tensor, second: Tensor) -> bool:
    same = first.dtype == second.dtype and first.device == second.device
    return same and torch.equal(first, second)
