r"""Split-conformal thresholds: how large a score may be, by rows that nothing was learned from.

Of :math:`n` rows that are drawn as new ones are, with scores :math:`s_i`, the threshold is the
:math:`\lceil (n + 1) c \rceil`-th smallest score: a new row is not above it with a probability of
at least :math:`c`, the coverage, whatever the scores are and however good the model is. Over draws
of the :math:`n` rows the probability has a beta distribution, so that few rows promise the same on
average and keep it less evenly: see :func:`coverage_interval`.
"""

import math
from fractions import Fraction

import torch
from torch import Tensor

from hma.errors import UserError


def least_rows(coverage: float) -> int:
    """Return how many rows a threshold of this coverage needs.

    Example:
        >>> least_rows(0.95), least_rows(0.9), least_rows(0.5)
        (19, 9, 1)
    """
    exact = _exact(coverage)
    return math.ceil(exact / (1 - exact))


def rank(rows: int, coverage: float) -> int:
    """Return which of so many sorted scores is the threshold, counted from 1.

    Example:
        >>> rank(19, 0.95), rank(100, 0.9)
        (19, 91)
    """
    needed = least_rows(coverage)
    if rows < needed:
        raise UserError(
            f"coverage {coverage:g} needs at least {needed} validation rows, got {rows}; ask for "
            f"at most {rows / (rows + 1):.4g}, or set more rows aside"
        )
    return math.ceil((rows + 1) * _exact(coverage))


def threshold(scores: Tensor, coverage: float) -> float:
    """Return the score that a new row is not above, with a probability of ``coverage``.

    Args:
        scores: Of rows that nothing was learned from, ``(N,)``.
        coverage: Between 0 and 1.

    Example:
        >>> threshold(torch.arange(1.0, 20.0), 0.9)
        18.0
    """
    place = rank(len(scores), coverage)
    return float(scores.double().sort().values[place - 1])


def class_scores(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return what the true class lacks to certainty, ``(B, C)`` and ``(B,)`` to ``(B,)``."""
    return 1 - probabilities.double().gather(1, labels.long()[:, None])[:, 0]


def class_sets(probabilities: Tensor, most: float) -> Tensor:
    """Return which classes lack no more than ``most`` to certainty, ``(B, C)`` of bool.

    These are the smallest sets on average that keep a coverage. The likeliest class is always in,
    so that no set is empty: that can only cover more.

    Args:
        probabilities: ``(B, C)``.
        most: The :func:`threshold` of :func:`class_scores`.

    Example:
        >>> class_sets(torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]]), 0.7)
        tensor([[ True,  True, False],
                [ True,  True, False]])
    """
    inside = 1 - probabilities.double() <= most
    return inside.scatter(1, probabilities.argmax(dim=1, keepdim=True), True)


def coverage_interval(
    rows: int, coverage: float, tested: int, share: float = 0.95
) -> tuple[float, float]:
    r"""Return between which values the coverage of ``tested`` new rows lies in most draws.

    With :math:`k` of :func:`rank`, the number of rows that are covered has the beta-binomial
    distribution of :math:`k` and :math:`n + 1 - k`.

    Args:
        rows: That the threshold is of, ``n``.
        coverage: That was asked for.
        tested: How many new rows were looked at.
        share: Of the draws, as many outside on either side.

    Example:
        >>> low, high = coverage_interval(200, 0.9, 400)
        >>> f"{low:.3f} to {high:.3f}"
        '0.845 to 0.945'
    """
    first = rank(rows, coverage)
    second = rows + 1 - first
    hits = torch.arange(tested + 1, dtype=torch.double)
    logs = _log_beta(hits + first, tested - hits + second) - _log_beta(hits + 1, tested - hits + 1)
    below = torch.softmax(logs, dim=0).cumsum(dim=0)
    tail = (1 - share) / 2
    low = int((below < tail).sum())
    high = int((below < 1 - tail).sum())
    return low / tested, min(high, tested) / tested


def _log_beta(one: Tensor, two: Tensor) -> Tensor:
    return torch.lgamma(one) + torch.lgamma(two) - torch.lgamma(one + two)


def _exact(coverage: float) -> Fraction:
    """Return a coverage as it is written: 0.95 is 95 of 100, to the last bit."""
    if not 0 < coverage < 1:
        raise UserError(f"coverage must be between 0 and 1, such as 0.95, got {coverage:g}")
    return Fraction(repr(float(coverage)))
