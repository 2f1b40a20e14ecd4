"""Regression: a number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from hma.errors import UserError
from hma.targets.target import NO_VOTE, Target, expect_none, expect_rows, or_mask

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Places in the distribution of a number that slots stand for."""


@final
@dataclass(frozen=True)
class Number(Target):
    """A number; the model works in units of ``scale`` around ``centre``.

    Args:
        centre: Mean of the training labels.
        scale: Their standard deviation.

    Example:
        >>> target = Number(centre=10.0, scale=2.0)
        >>> target.loss(torch.tensor([[1.0]]), torch.tensor([14.0]))
        tensor([1.])
        >>> target.expected(torch.tensor([[1.0]]))
        tensor([12.])
    """

    kind: ClassVar[str] = "number"
    gives_probabilities: ClassVar[bool] = False
    picks_one: ClassVar[bool] = False
    centre: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.centre):
            raise UserError(f"centre must be finite, got {self.centre}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise UserError(
                f"scale must be finite and above 0, got {self.scale}; a label that is the same in "
                "every row cannot be learned"
            )

    @property
    def outputs(self) -> int:
        """One output."""
        return 1

    @property
    def table_rows(self) -> int:
        """A line through the table: where it starts, and its direction."""
        return 2

    def unknown(self, count: int) -> Tensor:
        """Return NaN."""
        return torch.full((count,), math.nan)

    def prototypes(self) -> Tensor:
        """Return quantiles of a normal distribution."""
        places: Tensor = torch.special.ndtri(torch.tensor(QUANTILES))
        return places

    def check(self, y: Tensor, count: int, ignore: Tensor | None = None) -> Tensor:
        """Return standardised numbers."""
        expect_rows(y.reshape(-1) if y.shape == (count, 1) else y, count)
        y = self._standard(y.reshape(-1))
        if ignore is not None:
            y = y.masked_fill(ignore, 0.0)
        expect_none(~y.isfinite(), y, "y must hold finite numbers", "mark others in `ignore`")
        return y

    def _standard(self, y: Tensor) -> Tensor:
        wide: Tensor = y.to(torch.promote_types(y.dtype, torch.float32)) - self.centre
        return wide / self.scale

    def mix(self, stored: Tensor) -> Tensor:
        """Return the point on the line; NaN is MASK."""
        line = torch.stack([torch.ones_like(stored), stored], dim=1)  # (N, 2)
        return or_mask(line, ~stored.isnan())

    def membership(self, stored: Tensor) -> Tensor:
        """Return 1 for the nearest prototype."""
        places = self.prototypes().to(stored)
        apart = (stored.nan_to_num()[:, None] - places).abs()  # (N, P)
        nearest: Tensor = one_hot(apart.argmin(dim=1), len(places))
        return torch.where(stored.isnan()[:, None], 0, nearest)

    def ballots(self, stored: Tensor) -> Tensor:
        """Return the number, and 1 for having one, ``(N, 2)``."""
        return torch.stack([stored.nan_to_num(), (~stored.isnan()).to(stored.dtype)], dim=1)

    def stated(self, stored: Tensor) -> Tensor:
        """Return the number in its own unit, ``(N,)``."""
        return self.given(stored)

    def apart(self, stated: Tensor, said: Tensor) -> Tensor:
        """Return the difference in units of ``scale``."""
        return (stated - said).abs() / self.scale

    def unshared(self, stored: Tensor) -> Tensor:
        """Tell nothing: any number can be judged by any other."""
        return torch.zeros_like(stored, dtype=torch.bool)

    def tally(self, votes: Tensor) -> Tensor:
        """Return the weighted mean; a little of the mean of all is in it."""
        return votes[:, :1] / (votes[:, 1:] + NO_VOTE)

    def wanted(self, stored: Tensor) -> Tensor:
        """Return the number in standard units, ``(N, 1)``."""
        return stored[:, None]

    def from_scores(self, scores: Tensor, sharpness: float | Tensor, known: Tensor) -> Tensor:
        """Return scores as they are."""
        return scores

    def given(self, stored: Tensor) -> Tensor:
        """Return the numbers in their own unit."""
        return stored * self.scale + self.centre

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the squared error in standard units."""
        return (logits[:, 0] - self._standard(y.reshape(-1)).to(logits.dtype)) ** 2

    def expected(self, logits: Tensor) -> Tensor:
        """Return the number, ``(B,)``."""
        return self.given(logits[:, 0].to(torch.promote_types(logits.dtype, torch.float32)))

    def decide(self, logits: Tensor) -> Tensor:
        """Return the number, ``(B,)``."""
        return self.expected(logits)

    def words(self, logits: Tensor) -> list[str]:
        """Return the number."""
        return [f"{value:.4g}" for value in self.expected(logits).tolist()]

    @property
    def description(self) -> str:
        """A number."""
        return "a number"

    def group_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the quantiles that prototypes stand for.

        Example:
            >>> Number(10.0, 2.0).group_names(["price"])[2]
            'price about 10'
        """
        middles = self.given(self.prototypes()).tolist()
        return tuple(f"{names[0]} about {middle:.3g}" for middle in middles)

    def label_text(self, names: Sequence[str], label: Any) -> str:
        """Return the number."""
        return "" if math.isnan(label) else f"{label:.4g}"

    def answer_text(self, names: Sequence[str], expected: Any) -> str:
        """Return the number and its name."""
        return f"{names[0]} {expected:.6g}"
