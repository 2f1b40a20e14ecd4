"""What is known of a metric, whatever its formula."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hma.targets import Target

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
OfWeights = Callable[[Floats], Floats]
"""Scores of the same rows under several weightings of them, ``(N, R) -> (R,)``."""
Weighted = Callable[[Tensor, Tensor, Target], OfWeights]
"""From outputs ``(N, outputs)``, labels and their target to the formula for weighted rows."""
Interval = Literal["bootstrap", "wilson"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number that says how good predictions are.

    Args:
        name: As records and options have it.
        title: For people.
        targets: Kinds of labels it is defined for.
        weighted: Its formula for weighted rows: one formula serves a test set and all its
            resamples.
        formula: The same for rows that count alike, where it is computed in another way.
        larger_is_better: Its direction.
        scale: What tables multiply it with; 100 where they print percent.
        digits: Decimals in tables.
        share: Whether it is a share of rows, which sentences print in percent.
        interval: How its interval is made: Wilson's for a share of rows, else by resampling.
        recorded: Whether records hold it.
        followed: Whether every validation computes it.
    """

    name: str
    title: str
    targets: tuple[type[Target], ...]
    weighted: Weighted
    formula: Callable[[Tensor, Tensor, Target], float] | None = None
    larger_is_better: bool = True
    scale: float = 1.0
    digits: int = 3
    share: bool = False
    interval: Interval = "bootstrap"
    recorded: bool = True
    followed: bool = False

    def serves(self, target: Target) -> bool:
        """Tell whether it is defined for such labels."""
        return isinstance(target, self.targets)

    def score(self, outputs: Tensor, labels: Tensor, target: Target) -> float:
        """Return the score of ``outputs`` ``(N, outputs)``, in float64."""
        outputs, labels = outputs.detach().cpu().double(), labels.cpu()
        if labels.ndim == 0 or len(labels) != len(outputs) or len(labels) == 0:
            raise ValueError(
                f"labels must have one entry for each of 1 or more rows of outputs, got shapes "
                f"{tuple(labels.shape)} and {tuple(outputs.shape)}"
            )
        if self.formula is not None:
            return self.formula(outputs, labels, target)
        return self.of_equal_rows(outputs, labels, target)

    def of_equal_rows(self, outputs: Tensor, labels: Tensor, target: Target) -> float:
        """Return what ``weighted`` gives where every row counts alike."""
        return float(self.weighted(outputs, labels, target)(np.ones((len(labels), 1)))[0])

    def better(self, score: float, other: float) -> bool:
        """Tell whether ``score`` is better than ``other``; one that is undefined never is."""
        return score > other if self.larger_is_better else score < other


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """Return the mean of values ``(N,)`` under each weighting ``(N, R)``, ``(R,)``."""
    return np.asarray(values @ weights / weights.sum(axis=0))


def ratio(
    above: Floats, below: Floats, *, where: Booleans | None = None, otherwise: float
) -> Floats:
    """Return ``above / below`` where ``below`` is positive, or as told, and else ``otherwise``."""
    out = np.full_like(above, otherwise)
    return np.asarray(np.divide(above, below, out=out, where=below > 0 if where is None else where))
