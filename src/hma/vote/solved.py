"""Solved votes: stored rows say not their labels, but what makes all of them together right.

:class:`SolvedVote` holds what was chosen once (width of the kernel, penalty, temperature, share).
What each row says follows from the rows that are stored. It is solved for when these change, by way
of what was solved for last (:mod:`hma.vote.factor`): a memory that was taught or made to forget
rows is, to rounding, one that always had the rest. Of many rows those near a query are solved for
(:mod:`hma.vote.near`).
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hma.memory.blocks import evenly_spaced
from hma.metrics.losses import minimise
from hma.targets import Target, YesNo
from hma.vote.config import View
from hma.vote.factor import Factor, KeptFactors, gaussian, squared_distances
from hma.vote.near import NEAREST, NearRows, outputs_by_rows

MOST_SOLVED = 4000
"""Rows that are solved for together; of more, those near each query are, for this query."""
MOST_SEARCHED = 200_000
"""Rows among which those near a query are looked for; of more, rows have their labels' vote."""
MOST_TRIED = 1000
"""Rows that settings are tried with."""
WIDTHS = (0.3, 1.0)
"""Widths of the kernel that are tried first, in units of the inverse median squared distance."""
PENALTIES = (0.03, 0.1, 0.3)
MOST_WIDENED, MOST_PENALTIES = 5, 8
"""Widths and penalties that are tried beyond an end of the first, as long as the last one is the
best."""
SHARPNESS = (0.0, 4.0)
"""Bounds of the logarithm of what scores are multiplied with."""
FEW_ROWS = 4
"""Share of all rows, as 1 in so many, for which no whole matrix is inverted."""
LEAST_TOLD = 1e-3
"""Share of the loss that rows must take from each other for their kernel to be chosen by them."""
LEAST_SPREAD, LEAST_WEIGHT, LEAST_PENALTY = 1e-6, 1e-8, 1e-9


class Kernel(NamedTuple):
    """What a solved vote needs besides its rows."""

    width: float
    """``gamma`` times the median squared distance of the rows."""
    penalty: float
    temperature: float
    own_scales: bool = True
    """Whether each column of the view has a scale of its own, or one serves all."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Kernel":
        """Return the kernel that a record holds as numbers."""
        width, penalty, temperature, own_scales = values
        return cls(width, penalty, temperature, bool(own_scales))


class AskedRows(NamedTuple):
    """Rows that a solved vote is asked about: ``(N, E)``, ``(N, ...)``, ``(N,)``."""

    view: Tensor
    labels: Tensor
    """As they are given, not as they are stored."""
    weight: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SolvedRows:
    r"""Stored rows and what each of them says.

    .. math:: A = (K + \lambda I)^{-1} (Y - \text{prior}), \quad f(x) = \sum_j \kappa(x, j) A_j

    Shape:
        - ``keys`` ``(N, E)``; ``values`` ``(N, O)``: zero for a row that does not speak; ``has``
          ``(N, O)``: which rows speak of what; ``known`` ``(O,)``: outputs that any row or the
          prior names; ``gamma`` ``()``.
        - ``solved``: for outputs that the same rows have, ``(O,)`` of bool: where these rows are,
          ``(n,)``, and their factor.
        - ``hidden`` ``(B, N)``: rows that a query does without; None for none.
    """

    keys: Tensor
    values: Tensor
    has: Tensor
    known: Tensor
    gamma: Tensor
    solved: "list[Solved]"
    hidden: Tensor | None = None

    @cached_property
    def inverses(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Outputs that the same rows have, those rows, and the inverse of their kernel matrix.

        Without gaps in the labels that is all outputs, all rows and one matrix.

        Shape:
            - ``(O,)`` of bool, ``(N,)`` of bool, ``(N, N)`` in float64: rows that are not there
              stand apart.
        """
        found = []
        for columns, places, factor, names in self.solved:
            inverse = factor.upper.new_zeros(len(self.keys), len(self.keys))
            inverse[places[:, None], places] = factor.inverse(names)
            found.append((columns, self.has[:, columns.nonzero()[0, 0]], inverse))
        return found

    def scores(self, keys: Tensor) -> Tensor:
        """Return the sum of what rows say, ``(B, E)`` to ``(B, O)``."""
        near = gaussian(keys, self.keys, self.gamma)  # (B, N), 1 at the same place
        scores = near @ self.values
        if self.hidden is None:
            return scores
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

    def leave_one_out(self, wanted: Tensor, own: Tensor) -> Tensor:
        r"""Return what each row would be told by all others, ``(B, O)``: :math:`y - A / G_{ii}`.

        A row without a label is told by all that have it.

        Args:
            wanted: What rows should have said, without the prior, ``(N, O)``; NaN where unknown.
            own: Which rows, ``(B,)``.
        """
        told = (gaussian(self.keys[own], self.keys, self.gamma) @ self.values).double()
        values = self.values[own].double()
        for columns, rows, diagonal in self._diagonals(own):
            left = wanted[own] - values / diagonal[:, None]
            told = torch.where(rows[:, None] & columns, left, told)
        return told

    def _diagonals(self, own: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield outputs, which of some rows have them, and their diagonal of the inverse."""
        if "inverses" in self.__dict__ or FEW_ROWS * len(own) > len(self.keys):
            for columns, rows, inverse in self.inverses:
                yield columns, rows[own], inverse.diagonal()[own]
            return
        for columns, places, factor, names in self.solved:
            within = places.new_full((len(self.keys),), -1)
            within[places] = torch.arange(len(places), device=places.device)
            there = within[own] >= 0
            diagonal = self.gamma.new_ones(len(own), dtype=torch.float64)
            diagonal[there] = factor.inverse_diagonal(names[within[own][there]])
            yield columns, there, diagonal


class Solved(NamedTuple):
    """Outputs that the same rows have, where these rows are, their factor and their names."""

    columns: Tensor
    places: Tensor
    factor: Factor
    names: Tensor


class SolvedVote(nn.Module):
    r"""Answer with stored rows that each say what was solved for.

    .. math:: \kappa(x, j) = e^{-\gamma |k - k_j|^2}, \quad
        p = \mathrm{softmax}\big(\tau\, (\text{prior} + \textstyle\sum_j \kappa(x, j) A_j)\big)

    Args:
        target: What a label is.
        view: Where rows lie: at their learned ``keys``, or in the ``view`` that keys are made of,
            brought to mean 0 and variance 1, column by column or all by one scale.
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
        self._kept, self._said = KeptFactors(), False

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
        held_out: AskedRows | None = None,
    ) -> Kernel:
        """Choose scales, width, penalty and temperature: each row is answered by the others.

        That is closed, so no rows need be set aside. Keys have learned from these very labels,
        which makes them look surer than they are, so what the answer counts is decided by
        held-out rows: :mod:`hma.vote.weighing`. Where the others tell a row nothing, as with one
        row of each class, held-out rows choose the kernel too.

        Args:
            view: Of rows that are stored, ``(N, E)``.
            labels: As they are stored, ``(N, ...)``.
            weight: What each row counts, ``(N,)``; None for 1.
            kernel: Take this one; None chooses.
            held_out: Rows that are not stored; None where there are none.
        """
        wanted = self.target.wanted(labels).double()
        counts = _row_weights(view, weight)
        known = counts[:, None] * ~wanted.isnan()
        self.prior.copy_(
            (wanted.nan_to_num() * known).sum(dim=0) / known.sum(dim=0).clamp(min=1e-9)
        )
        some = evenly_spaced(len(view), MOST_TRIED).to(view.device)
        if kernel is None:
            left = (wanted[some] - self.prior.double()).nan_to_num()
            rows = AskedRows(view[some], self.target.given(labels[some]), counts[some])
            kernel = self._choose(view, rows, left, held_out)
        self._scale(view, own_scales=kernel.own_scales)
        self.gamma.copy_(kernel.width / self._unit(view[some]))
        self.penalty.fill_(kernel.penalty)
        self.temperature.fill_(kernel.temperature)
        return kernel

    def _scale(self, view: Tensor, *, own_scales: bool) -> None:
        """Bring columns of a view to mean 0 and variance 1, each by itself or all together."""
        if self.view != "view":
            return  # the scales of keys are learned
        self.centre.copy_(view.mean(dim=0))
        spread = view.std(dim=0, correction=0)
        if not own_scales:
            spread = spread.square().mean().sqrt().expand_as(spread)
        self.spread.copy_(torch.where(spread > LEAST_SPREAD, spread, 1.0))

    def _unit(self, view: Tensor) -> Tensor:
        """Return the median squared distance of rows as they are placed, in float64."""
        keys = self.place(view).double()
        apart = squared_distances(keys, keys).fill_diagonal_(0.0)
        return apart[apart > 0].median() if bool((apart > 0).any()) else apart.new_ones(())

    def _choose(
        self, view: Tensor, rows: AskedRows, left: Tensor, held_out: AskedRows | None
    ) -> Kernel:
        """Return the best kernel with each kind of scales.

        Args:
            view: Of all stored rows, ``(N, E)``, which scales are taken from.
            rows: Those that settings are tried with, ``n`` of them.
            left: What these should say beside the prior, ``(n, O)``.
            held_out: Rows that are not stored.
        """
        kinds = (True, False) if self.view == "view" else (True,)

        def best_for(asked: AskedRows, *, stored: bool) -> tuple[float, Kernel]:
            found = []
            for own_scales in kinds:
                self._scale(view, own_scales=own_scales)
                keys, unit = self.place(rows.view).double(), self._unit(rows.view)
                queries = None if stored else self.place(asked.view).double()
                scores = _scores_by_kernel(keys, unit, left, rows.weight, queries)
                loss, kernel = self._try(scores, asked)
                found.append((loss, kernel._replace(own_scales=own_scales)))
            return min(found)

        best = best_for(rows, stored=True)
        nothing = self._sharpen(torch.zeros_like(left), rows)[0]
        if held_out is not None and best[0] > (1 - LEAST_TOLD) * nothing:
            best = best_for(held_out, stored=False)
        return best[1]

    def _try(self, scores: "ScoresByKernel", asked: AskedRows) -> tuple[float, Kernel]:
        """Return the best of all widths and penalties, trying more as long as it is at an end.

        Args:
            scores: What is said of the rows that are asked, by width and penalty.
            asked: These rows.
        """

        def best_with(width: float) -> tuple[float, Kernel]:
            at_penalty = scores(width)

            def loss(penalty: float) -> tuple[float, Kernel]:
                loss, heat = self._sharpen(at_penalty(penalty), asked)
                return loss, Kernel(width, penalty, heat)

            return min(_widen(PENALTIES, loss, MOST_PENALTIES).values())

        return min(_widen(WIDTHS, best_with, MOST_WIDENED).values())

    def _sharpen(self, scores: Tensor, asked: AskedRows) -> tuple[float, float]:
        """Return the least loss of scores, and what they are multiplied with for it."""
        scores, known = scores + self.prior.double(), self.prior > 0
        counts = _row_weights(scores, asked.weight)

        def loss(log: float) -> float:
            logits = self.target.from_scores(scores, math.exp(log), known)
            return float((self.target.loss(logits, asked.labels) * counts).sum() / counts.sum())

        log = 0.0
        if self.target.gives_probabilities:
            log = minimise(loss, *SHARPNESS, rounds=12)
        return loss(log), math.exp(log)

    @torch.no_grad()
    def rows(
        self,
        view: Tensor,
        labels: Tensor,
        there: Tensor,
        weight: Tensor | None = None,
        *,
        names: Tensor | None = None,
        behind: Sequence[Tensor] = (),
        keep: bool = True,
    ) -> "SolvedRows | NearRows | None":
        """Solve for what stored rows say; None where they are too many.

        Args:
            view: ``(N, E)``.
            labels: As they are stored, ``(N, ...)``.
            there: Which of them speak, ``(N,)``.
            weight: What each of them counts, ``(N,)``; None for 1.
            names: Their fingerprints, ``(N,)``: what was solved for last is then made use of.
            behind: What the view is made with; what is kept is of no use once this changes.
            keep: Whether to keep, with ``names``, what is solved for now.
        """
        if not 0 < len(view) <= MOST_SEARCHED:
            self._say_once(
                len(view),
                f"{len(view):,} rows are too many for solved votes, which take up to "
                f"{MOST_SEARCHED:,}: rows vote by their labels alone",
            )
            return None
        keys = self.place(view)
        wanted = self.target.wanted(labels).double()  # (N, O)
        has = there[:, None] & ~wanted.isnan()
        left = (wanted - self.prior.double()).nan_to_num() * has
        gaps = isinstance(self.target, YesNo)
        penalty = (self.penalty.double() / _row_weights(view, weight)).clamp(min=LEAST_PENALTY)
        known = (wanted.nan_to_num() * there[:, None] > 0).any(dim=0) | (self.prior > 0)
        if len(view) > MOST_SOLVED:
            if self._kept.clear():
                self._say_once(
                    len(view),
                    f"up to {MOST_SOLVED:,} rows are solved for together; there are "
                    f"{len(view):,} now, so for each query the {NEAREST} nearest are",
                )
            return NearRows(keys, left, has, known, self.gamma, penalty, gaps)
        behind = [self.gamma, self.penalty, self.centre, self.spread, *behind]
        held = [] if names is None else self._kept.get(behind)
        solved, values = [], torch.zeros_like(left)
        for columns, rows in outputs_by_rows(has, gaps):
            one = self._solved(columns, rows, keys, penalty, names, held)
            said = torch.zeros_like(left)
            said[one.places] = one.factor.solve(one.names, left[one.places])
            values = torch.where(columns, said, values)
            solved.append(one)
        if keep and names is not None:
            self._kept.keep(behind, [one.factor for one in solved])
        return SolvedRows(keys, (values * has).to(keys), has, known, self.gamma, solved)

    def _solved(
        self,
        columns: Tensor,
        rows: Tensor,
        keys: Tensor,
        penalty: Tensor,
        names: Tensor | None,
        held: Sequence[Factor],
    ) -> Solved:
        """Return the factor of the rows that speak of outputs."""
        every = torch.arange(len(rows), device=rows.device)
        if names is None:  # of all rows, so that its size does not depend on the data
            factor = Factor.of(every, keys, penalty, self.gamma, rows)
            return Solved(columns, every, factor, every)
        places = every[rows]
        own = names[places], keys[places], penalty[places]
        if held and len(places):
            factor = min(held, key=lambda one: one.differs(own[0])).followed_by(*own)
        else:
            factor = Factor.of(*own, self.gamma)
        return Solved(columns, places, factor, own[0])

    def _say_once(self, count: int, line: str) -> None:
        """Warn that rows have become too many for what was done with them."""
        if count and not self._said and not torch.compiler.is_compiling():
            warnings.warn(line, stacklevel=2)
            self._said = True

    def drop_solution(self) -> None:
        """Solve for all rows again at the next call, whatever was solved for last."""
        self._kept.clear()

    def logits(self, scores: Tensor, rows: SolvedRows | NearRows) -> Tensor:
        """Return what scores of rows come to, ``(B, O)`` to ``(B, outputs)``."""
        return self.target.from_scores(scores + self.prior, self.temperature, rows.known)

    def answer(self, view: Tensor, rows: SolvedRows | NearRows) -> Tensor:
        """Return the answer on queries, ``(B, E)`` to ``(B, outputs)``."""
        return self.logits(rows.scores(self.place(view)), rows)

    def leave_one_out(self, rows: SolvedRows | NearRows, labels: Tensor, own: Tensor) -> Tensor:
        """Return what all other rows say of the rows at the places ``own``, ``(B, outputs)``."""
        wanted = self.target.wanted(labels).double() - self.prior.double()
        scores = rows.leave_one_out(wanted, own).to(rows.keys)
        return self.logits(scores, rows)

    def extra_repr(self) -> str:  # noqa: D102
        return f"view={self.view!r}"


# ----------------------------------------------------------------------------------- solving


ScoresByKernel = Callable[[float], Callable[[float], Tensor]]
"""From a width, then a penalty, to what is said of some rows, ``(n, O)``."""


def _scores_by_kernel(
    keys: Tensor,
    unit: Tensor,
    left: Tensor,
    weight: Tensor | None,
    queries: Tensor | None = None,
) -> ScoresByKernel:
    """Return what all other rows say of each, or what all rows say of queries.

    With ``W`` what rows count, ``(K + lambda / W)^-1 = W' (W' K W' + lambda I)^-1 W'`` where
    ``W' W' = W``: one decomposition a width serves all penalties.

    Args:
        keys: Where rows lie, ``(N, E)``.
        unit: Squared distance that widths are given in, ``()``.
        left: What rows should say, ``(N, O)``.
        weight: What they count, ``(N,)``; None for 1.
        queries: Where rows lie that are not among them, ``(B, E)``; None asks the rows themselves.
    """
    root = _row_weights(keys, weight).sqrt()[:, None]  # (N, 1)
    apart = squared_distances(keys, keys).fill_diagonal_(0.0) / unit
    beside = None if queries is None else squared_distances(queries, keys) / unit  # (B, N)

    def with_width(width: float) -> Callable[[float], Tensor]:
        size, vectors = torch.linalg.eigh((-width * apart).exp() * (root * root.T))
        inner, squares = vectors.T @ (root * left), vectors.square()
        near = None if beside is None else ((-width * beside).exp() * root.T) @ vectors

        def with_penalty(penalty: float) -> Tensor:
            shrunk = 1 / (size.clamp(min=0) + penalty)
            told: Tensor
            if near is not None:
                told = near @ (shrunk[:, None] * inner)
                return told
            values = vectors @ (shrunk[:, None] * inner)  # (N, O), over the root
            diagonal = root * (squares @ shrunk)[:, None]  # (N, 1), of the inverse, over it too
            told = left - values / diagonal
            return told

        return with_penalty

    return with_width


def _widen(
    values: Sequence[float], best_with: Callable[[float], tuple[float, Kernel]], most: int
) -> dict[float, tuple[float, Kernel]]:
    """Return the losses with values, and with more beyond an end as long as it is the best."""
    tried = {value: best_with(value) for value in values}
    for _ in range(most):
        best = min(tried, key=lambda value: tried[value][0])
        if min(tried) < best < max(tried):
            break
        more = best / 3 if best == min(tried) else best * 3
        tried[more] = best_with(more)
    return tried


def _row_weights(view: Tensor, weight: Tensor | None) -> Tensor:
    """Return what each row counts in float64, ``(N,)``: never nothing."""
    if weight is None:
        return view.new_ones(len(view), dtype=torch.float64)
    return weight.double().clamp(min=LEAST_WEIGHT)


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

    def loudness(self) -> Tensor:
        """Return how much each stored row says, whatever it is, ``(B, N)``."""
        return self.near * self.values.abs().sum(dim=1)

    def times(self, share: float) -> "SolvedParts":
        """Return the parts of an answer that counts ``share``."""
        return self._replace(slope=share * self.slope)


class NearParts(NamedTuple):
    """The same where each query had rows near it solved for.

    Shape:
        - ``near`` ``(B, k)`` and ``values`` ``(B, k, O)`` of the rows of each query; ``at``
          ``(B, k)``: which of those named these are, ``named`` for one that is not; ``slope``
          ``(B, O, O)``.
    """

    near: Tensor
    values: Tensor
    at: Tensor
    named: int
    slope: Tensor

    def row(self, query: int) -> Tensor:
        """Return what each stored row put into one prediction, ``(N, O)``."""
        said = (self.near[query][:, None] * self.values[query]) @ self.slope[query].T  # (k, O)
        every = said.new_zeros(self.named + 1, said.shape[1])
        return every.index_add(0, self.at[query], said)[: self.named]

    def total(self) -> Tensor:
        """Return what all stored rows put into each prediction, ``(B, O)``."""
        near = self.near * (self.at < self.named)
        return torch.einsum("bk,bko,bpo->bp", near, self.values, self.slope)

    def loudness(self) -> Tensor:
        """Return how much each stored row says, whatever it is, ``(B, N)``."""
        loud = self.near * self.values.abs().sum(dim=2)  # (B, k)
        every = loud.new_zeros(len(loud), self.named + 1)
        return every.scatter_add(1, self.at, loud)[:, : self.named]

    def times(self, share: float) -> "NearParts":
        """Return the parts of an answer that counts ``share``."""
        return self._replace(slope=share * self.slope)


def solved_parts(
    vote: SolvedVote,
    rows: SolvedRows | NearRows,
    view: Tensor,
    places: Tensor,
    share: Tensor | float,
) -> SolvedParts | NearParts:
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
    keys = vote.place(view)
    said = rows.said(keys) if isinstance(rows, NearRows) else None
    scores = rows.scores(keys) if said is None else said.scores().to(keys)  # (B, O)
    way = torch.linspace(0, 1, NODES + 1, dtype=torch.float64)
    middle = ((way[1:] + way[:-1]) / 2).to(scores)

    def expected(score: Tensor) -> Tensor:
        said = vote.target.expected(vote.logits(score[None], rows))
        return said.reshape(-1).to(score)

    slope_at = torch.func.vmap(torch.func.jacrev(expected))
    slope = torch.stack([slope_at(part * scores) for part in middle]).mean(dim=0)  # (B, O, O)
    slope = slope * torch.as_tensor(share).to(slope).reshape(-1, 1, 1)
    if said is None:
        assert isinstance(rows, SolvedRows)
        near = gaussian(keys, rows.keys[places], rows.gamma)
        return SolvedParts(near, rows.values[places], slope)
    column = places.new_full((len(rows.keys),), len(places))
    column[places] = torch.arange(len(places), device=places.device)
    near, values = said.near.to(slope), said.values.to(slope)
    return NearParts(near, values, column[said.places], len(places), slope)
