"""Solved votes: stored rows say not their labels, but what makes all of them together right.

:class:`SolvedVote` holds what was chosen once (width of the kernel, penalty, temperature, share).
What each row says follows from the rows that are stored, and is solved for again when these change:
a memory that was taught or made to forget rows is, to the last bit, one that always had the rest.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hma.memory.blocks import MOST_DISTANCES, evenly_spaced, is_large
from hma.metrics.losses import minimise
from hma.targets import Target, YesNo
from hma.vote.config import View

MOST_SOLVED = 4000
"""Rows that are solved for directly; of more, so many landmarks speak, fitted to all rows."""
LANDMARKS = 2000
MOST_TRIED = 1000
"""Rows that settings are tried with."""
WIDTHS = (0.3, 1.0)
"""Widths of the kernel that are tried first, in units of the inverse median squared distance."""
PENALTIES = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
MOST_WIDENED = 5
"""Widths that are tried beyond an end of :data:`WIDTHS`, as long as the last one is the best."""
SHARPNESS = (0.0, 4.0)
"""Bounds of the logarithm of what scores are multiplied with."""
LEAST_SPREAD, LEAST_WEIGHT = 1e-6, 1e-8


class Kernel(NamedTuple):
    """What a solved vote needs besides its rows."""

    width: float
    """``gamma`` times the median squared distance of the rows."""
    penalty: float
    temperature: float


@dataclass(frozen=True, eq=False)
class SolvedRows:
    r"""Stored rows and what each of them says.

    .. math:: A = (K + \lambda I)^{-1} (Y - \text{prior}), \quad f(x) = \sum_j \kappa(x, j) A_j

    Shape:
        - ``keys`` ``(N, E)``; ``values`` ``(N, O)``: zero for a row that does not speak; ``has``
          ``(N, O)``: which rows speak of what; ``known`` ``(O,)``: outputs that any row or the
          prior names; ``penalty`` ``(N,)``: less for a row that counts more; ``gaps``: whether
          labels may have some.
        - ``hidden`` ``(B, N)``: rows that a query does without; None for none.
    """

    keys: Tensor
    values: Tensor
    has: Tensor
    known: Tensor
    gamma: Tensor
    penalty: Tensor
    gaps: bool
    hidden: Tensor | None = None

    @property
    def direct(self) -> bool:
        """Whether every row speaks, not landmarks alone."""
        return len(self.keys) <= MOST_SOLVED

    @cached_property
    def inverses(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Outputs that the same rows have, those rows, and the inverse of their kernel matrix.

        Without gaps in the labels that is all outputs, all rows and one matrix.

        Shape:
            - ``(O,)`` of bool, ``(N,)`` of bool, ``(N, N)`` in float64: rows that are not there
              stand apart.
        """
        found = []
        for columns, rows in _outputs_by_rows(self.has, self.gaps):
            factor = _factor(self.keys, rows, self.gamma, self.penalty)
            found.append((columns, rows, torch.cholesky_inverse(factor)))
        return found

    def kernel(self, keys: Tensor) -> Tensor:
        """Return how near each row is to queries, ``(B, E)`` to ``(B, N)``: 1 at the same place."""
        return gaussian(keys, self.keys, self.gamma)

    def scores(self, keys: Tensor) -> Tensor:
        """Return the sum of what rows say, ``(B, E)`` to ``(B, O)``."""
        near = self.kernel(keys)
        scores = near @ self.values
        if self.hidden is None:
            return scores
        if not self.direct:  # landmarks stand for all rows: without one of them, the others speak
            return (near * ~self.hidden) @ self.values
        each = zip(near.double(), scores, self.hidden, strict=True)
        return torch.stack([self._without(*one) for one in each])

    def _without(self, near: Tensor, score: Tensor, hidden: Tensor) -> Tensor:
        """Return the score of a query by a memory that never had the rows that are hidden.

        With ``G`` the inverse and ``R`` the rows: ``f - kappa G_R (G_RR)^-1 A_R``.
        """
        score = score.clone()
        for columns, rows, inverse in self.inverses:
            gone = hidden & rows
            if bool((gone == rows).all()):
                score[columns] = 0.0
            elif bool(gone.any()):
                said = self.values[gone][:, columns].double()
                lost = torch.linalg.solve(inverse[gone][:, gone], said)
                score[columns] -= ((near * rows) @ inverse[:, gone] @ lost).to(score)
        return score

    def leave_one_out(self, wanted: Tensor) -> Tensor:
        r"""Return what each row would be told by all others, ``(N, O)``: :math:`y - A / G_{ii}`.

        A row without a label is told by all that have it.

        Args:
            wanted: What rows should have said, without the prior, ``(N, O)``; NaN where unknown.
        """
        told = (self.kernel(self.keys) @ self.values).double()
        for columns, rows, inverse in self.inverses:
            own = rows[:, None] & columns
            left = wanted - self.values.double() / inverse.diagonal()[:, None]
            told = torch.where(own, left, told)
        return told


class SolvedVote(nn.Module):
    r"""Answer with stored rows that each say what was solved for.

    .. math:: \kappa(x, j) = e^{-\gamma |k - k_j|^2}, \quad
        p = \mathrm{softmax}\big(\tau\, (\text{prior} + \textstyle\sum_j \kappa(x, j) A_j)\big)

    Args:
        target: What a label is.
        view: Where rows lie: at their learned ``keys``, or in the ``view`` that keys are made of,
            each column brought to mean 0 and variance 1.
        width: Columns of that view, ``E``.
    """

    gamma: Tensor
    penalty: Tensor
    temperature: Tensor
    share: Tensor
    prior: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, target: Target, view: View, width: int) -> None:
        super().__init__()
        self.target, self.view = target, view
        for name in ("gamma", "penalty", "temperature"):
            self.register_buffer(name, torch.ones(()))
        self.register_buffer("share", torch.zeros(()))
        self.register_buffer("prior", torch.zeros(target.wanted(target.unknown(0)).shape[1]))
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def place(self, view: Tensor) -> Tensor:
        """Return where rows lie, ``(N, E)``."""
        return (view - self.centre) / self.spread

    @torch.no_grad()
    def choose_kernel(
        self,
        view: Tensor,
        labels: Tensor,
        weight: Tensor | None = None,
        kernel: Kernel | None = None,
    ) -> Kernel:
        """Choose width, penalty and temperature: each row is answered by the others.

        That is closed, so no rows need be set aside. Keys have learned from these very labels,
        which makes them look surer than they are, so what the answer counts is decided by
        held-out rows: :mod:`hma.vote.weighing`.

        Args:
            view: Of rows that are stored, ``(N, E)``.
            labels: As they are stored, ``(N, ...)``.
            weight: What each row counts, ``(N,)``; None for 1.
            kernel: Take this one; None chooses.
        """
        wanted = self.target.wanted(labels).double()
        counts = _row_weights(view, weight)
        known = counts[:, None] * ~wanted.isnan()
        self.prior.copy_(
            (wanted.nan_to_num() * known).sum(dim=0) / known.sum(dim=0).clamp(min=1e-9)
        )
        if self.view == "view":
            self.centre.copy_(view.mean(dim=0))
            flat = view.std(dim=0, correction=0)
            self.spread.copy_(torch.where(flat > LEAST_SPREAD, flat, 1.0))
        some = evenly_spaced(len(view), MOST_TRIED).to(view.device)
        keys = self.place(view[some]).double()
        apart = squared_distances(keys, keys).fill_diagonal_(0.0)
        unit = apart[apart > 0].median() if bool((apart > 0).any()) else apart.new_ones(())
        if kernel is None:
            rows = (wanted[some] - self.prior.double()).nan_to_num()
            given = self.target.given(labels[some])
            kernel = self._try(apart / unit, rows, given, counts[some])
        self.gamma.copy_(kernel.width / unit)
        self.penalty.fill_(kernel.penalty)
        self.temperature.fill_(kernel.temperature)
        return kernel

    def _try(self, apart: Tensor, rows: Tensor, labels: Tensor, counts: Tensor) -> Kernel:
        """Return the best of all widths, trying more as long as the best is at an end.

        With ``W`` what rows count, ``(K + lambda / W)^-1 = W' (W' K W' + lambda I)^-1 W'`` where
        ``W' W' = W``: one decomposition a width serves all penalties.
        """
        tried: dict[float, tuple[float, Kernel]] = {}
        root = counts.sqrt()[:, None]  # (N, 1)

        def best_with(width: float) -> None:
            size, vectors = torch.linalg.eigh((-width * apart).exp() * (root * root.T))
            inner, squares = vectors.T @ (root * rows), vectors.square()
            each = []
            for penalty in PENALTIES:
                shrunk = 1 / (size.clamp(min=0) + penalty)
                values = vectors @ (shrunk[:, None] * inner)  # (N, O), over the root
                diagonal = root * (squares @ shrunk)[:, None]  # (N, 1), of the inverse, over it too
                loss, heat = self._sharpen(rows - values / diagonal, labels, counts)
                each.append((loss, Kernel(width, penalty, heat)))
            tried[width] = min(each)

        for width in WIDTHS:
            best_with(width)
        for _ in range(MOST_WIDENED):
            best = min(tried, key=lambda width: tried[width])
            if min(tried) < best < max(tried):
                break
            best_with(best / 3 if best == min(tried) else best * 3)
        return min(tried.values())[1]

    def _sharpen(self, scores: Tensor, labels: Tensor, counts: Tensor) -> tuple[float, float]:
        """Return the least loss of scores, and what they are multiplied with for it."""
        scores, known = scores + self.prior.double(), self.prior > 0

        def loss(log: float) -> float:
            logits = self.target.from_scores(scores, math.exp(log), known)
            return float((self.target.loss(logits, labels) * counts).sum() / counts.sum())

        log = 0.0
        if self.target.gives_probabilities:
            log = minimise(loss, *SHARPNESS, rounds=12)
        return loss(log), math.exp(log)

    @torch.no_grad()
    def rows(
        self, view: Tensor, labels: Tensor, there: Tensor, weight: Tensor | None = None
    ) -> SolvedRows | None:
        """Solve for what stored rows say; None where they are too many.

        Args:
            view: ``(N, E)``.
            labels: As they are stored, ``(N, ...)``.
            there: Which of them speak, ``(N,)``.
            weight: What each of them counts, ``(N,)``; None for 1.
        """
        if is_large(len(view)) or not len(view):
            return None
        keys = self.place(view)
        wanted = self.target.wanted(labels).double()  # (N, O)
        has = there[:, None] & ~wanted.isnan()
        left = (wanted - self.prior.double()).nan_to_num() * has
        gaps = isinstance(self.target, YesNo)
        penalty = self.penalty.double() / _row_weights(view, weight)  # (N,)
        values = _solve(keys, left, has, self.gamma, penalty, gaps)
        named = (wanted.nan_to_num() * there[:, None] > 0).any(dim=0)
        return SolvedRows(
            keys,
            values.to(keys.dtype),
            has,
            named | (self.prior > 0),
            self.gamma,
            penalty,
            gaps,
        )

    def logits(self, scores: Tensor, rows: SolvedRows) -> Tensor:
        """Return what scores of rows come to, ``(B, O)`` to ``(B, outputs)``."""
        return self.target.from_scores(scores + self.prior, self.temperature, rows.known)

    def answer(self, view: Tensor, rows: SolvedRows) -> Tensor:
        """Return the answer on queries, ``(B, E)`` to ``(B, outputs)``."""
        return self.logits(rows.scores(self.place(view)), rows)

    def leave_one_out(self, rows: SolvedRows, labels: Tensor, own: Tensor) -> Tensor:
        """Return what all other rows say of the rows at the places ``own``, ``(B, outputs)``."""
        wanted = self.target.wanted(labels).double() - self.prior.double()
        scores = rows.leave_one_out(wanted)[own].to(rows.values)
        return self.logits(scores, rows)

    def extra_repr(self) -> str:  # noqa: D102
        return f"view={self.view!r}"


# ----------------------------------------------------------------------------------- solving


def squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """Return ``|a - b|²`` of all pairs, ``(B, E)`` and ``(N, E)`` to ``(B, N)``; never below 0."""
    lengths = first.square().sum(dim=1)[:, None] + second.square().sum(dim=1)
    return torch.addmm(lengths, first, second.T, alpha=-2).clamp(min=0)


def gaussian(first: Tensor, second: Tensor, gamma: Tensor) -> Tensor:
    """Return ``exp(-gamma |a - b|²)`` of all pairs, ``(B, N)``."""
    return torch.exp(-gamma * squared_distances(first, second))


def _factor(keys: Tensor, there: Tensor, gamma: Tensor, penalty: Tensor) -> Tensor:
    """Return the Cholesky factor of the kernel with its penalty; rows not there stand apart."""
    wide = keys.double()
    kernel = gaussian(wide, wide, gamma.double()) * (there[:, None] & there)
    kernel.fill_diagonal_(1.0)
    kernel.diagonal().add_(penalty.double())
    factor: Tensor = torch.linalg.cholesky(kernel)
    return factor


def _row_weights(view: Tensor, weight: Tensor | None) -> Tensor:
    """Return what each row counts in float64, ``(N,)``: never nothing."""
    if weight is None:
        return view.new_ones(len(view), dtype=torch.float64)
    return weight.double().clamp(min=LEAST_WEIGHT)


def _outputs_by_rows(has: Tensor, gaps: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield outputs that the same rows speak of, ``(O,)`` of bool, and those rows, ``(N,)``."""
    if not gaps:
        yield torch.ones_like(has[0]), has[:, 0]
    elif torch.compiler.is_compiling():  # how many kinds there are depends on the data
        yield from zip(torch.eye(has.shape[1]).bool().to(has), has.T, strict=True)
    else:
        kinds, kind_of = has.unique(dim=1, return_inverse=True)  # type: ignore[no-untyped-call]
        for kind, rows in enumerate(kinds.T):
            yield kind_of == kind, rows


def _solve(
    keys: Tensor, wanted: Tensor, has: Tensor, gamma: Tensor, penalty: Tensor, gaps: bool
) -> Tensor:
    """Return what each row says, ``(N, O)``: zero where it does not speak.

    A label with gaps is solved for among the rows that have it.
    """
    if len(keys) > MOST_SOLVED:
        return _solve_landmarks(keys, wanted, has.any(dim=1), gamma, penalty)
    values = torch.zeros_like(wanted)
    for columns, rows in _outputs_by_rows(has, gaps):
        factor = _factor(keys, rows, gamma, penalty)
        values = torch.where(columns, torch.cholesky_solve(wanted, factor), values)
    return values * has


def _solve_landmarks(
    keys: Tensor, wanted: Tensor, there: Tensor, gamma: Tensor, penalty: Tensor
) -> Tensor:
    """Return what landmarks say, fitted to all rows; all others say nothing.

    With ``C`` the kernel between all rows and landmarks, and ``L`` the penalty of each row:
    ``(C' L^-1 C + K) A = C' L^-1 Y``.
    """
    held = there.nonzero()[:, 0]
    chosen = held[evenly_spaced(len(held), LANDMARKS).to(held.device)]
    centres, rate = keys[chosen].double(), gamma.double()
    inner = gaussian(centres, centres, rate)
    inner += 1e-6 * torch.eye(len(chosen)).to(inner)
    right = wanted.new_zeros(len(chosen), wanted.shape[1])
    for part in torch.split(held, max(1, MOST_DISTANCES // len(chosen))):
        near = gaussian(keys[part].double(), centres, rate)
        counted = (near / penalty[part, None]).T
        inner += counted @ near
        right += counted @ wanted[part]
    values = torch.zeros_like(wanted)
    values[chosen] = torch.cholesky_solve(right, torch.linalg.cholesky(inner))
    return values


# ------------------------------------------------------------------------- parts of an answer


NODES = 24
"""Places on the way from the prior to the answer at which the slope is looked at."""


class SolvedParts(NamedTuple):
    """What each stored row put into an answer of solved votes; below 0 it speaks against.

    Shape:
        - ``near`` ``(B, N)``; ``values`` ``(N, O)``; ``slope`` ``(B, O, O)``: what a score of each
          output counts for each probability, with the share of the vote in it.
    """

    near: Tensor
    values: Tensor
    slope: Tensor

    def row(self, query: int) -> Tensor:
        """Return what each stored row put into one prediction, ``(N, O)``."""
        return (self.near[query][:, None] * self.values) @ self.slope[query].T

    def total(self) -> Tensor:
        """Return what all stored rows put into each prediction, ``(B, O)``."""
        return torch.einsum("bo,bpo->bp", self.near @ self.values, self.slope)

    def times(self, share: float) -> "SolvedParts":
        """Return the parts of an answer that counts ``share``."""
        return self._replace(slope=share * self.slope)


def solved_parts(
    vote: SolvedVote, rows: SolvedRows, view: Tensor, places: Tensor, share: Tensor | float
) -> SolvedParts:
    """Return the parts of an answer of solved votes.

    A probability bends: what a row adds to it depends on what the others have said. Each row's
    score counts by the mean slope on the straight way from the prior to the answer, so that the
    parts of all rows sum to what the answer differs from the prior.

    Args:
        vote: Its settings.
        rows: What rows say.
        view: Of the queries, ``(B, E)``.
        places: Of the rows that are named, ``(N,)``.
        share: What the vote counts in the whole answer, ``()`` or ``(B,)``.
    """
    near = rows.kernel(vote.place(view))  # (B, M)
    scores = near @ rows.values  # (B, O)
    way = torch.linspace(0, 1, NODES + 1, dtype=torch.float64)
    middle = ((way[1:] + way[:-1]) / 2).to(scores)

    def expected(score: Tensor) -> Tensor:
        said = vote.target.expected(vote.logits(score[None], rows))
        return said.reshape(-1).to(score)

    slope_at = torch.func.vmap(torch.func.jacrev(expected))
    slope = torch.stack([slope_at(part * scores) for part in middle]).mean(dim=0)  # (B, O, O)
    counts = torch.as_tensor(share).to(slope).reshape(-1, 1, 1)
    return SolvedParts(near[:, places], rows.values[places], slope * counts)
