"""Soft labels: distributions over classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from hma.targets.checks import expect_added, expect_count, expect_none, expect_rows, or_mask
from hma.targets.classes import Classes
from hma.targets.mixing import Shares, log_mean_probability
from hma.targets.target import Target


@final
@dataclass(frozen=True)
class SoftClasses(Target):
    """A distribution over ``count`` classes, as mixing rows makes it; class ids are taken too.

    Args:
        count: Number of classes, 2 or more.
        added: How many of them, the last ones, were added to a trained model, see
            :mod:`hma.vote.added_classes`.

    Example:
        >>> target = SoftClasses(2)
        >>> target.checked(torch.tensor([[0.25, 0.75]]), count=1)
        tensor([[0.2500, 0.7500]])
        >>> target.checked(torch.tensor([[0.5, 0.75]]), count=1)
        Traceback (most recent call last):
        ValueError: y must hold rows of at least 0 that sum to 1, got [0.5, 0.75] in row 0
    """

    kind: ClassVar[str] = "soft classes"
    count: int
    added: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        expect_count("count", self.count, "a soft label lies between classes", least=2)
        expect_added(self.added, self.count)

    @property
    def beyond_head(self) -> int:
        """Classes that were added."""
        return self.added

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.count

    @property
    def table_rows(self) -> int:
        """A row for each class."""
        return self.count

    def unknown(self, count: int) -> Tensor:
        """Return rows of NaN."""
        return torch.full((count, self.count), math.nan)

    def prototypes(self) -> Tensor:
        """Return each class once, whole."""
        return torch.eye(self.count)

    def checked(self, y: Tensor, count: int, ignore: Tensor | None = None) -> Tensor:
        """Return distributions."""
        if y.dim() == 1:
            ids = Classes(self.count).checked(y, count, ignore)
            return one_hot(ids, self.count).float()
        expect_rows(y, count, self.count)
        y = y.to(torch.promote_types(y.dtype, torch.float32))
        if ignore is not None:
            y = torch.where(ignore[:, None], 1 / self.count, y)
        sums = (y.double().sum(dim=1) - 1).abs() < 1e-3
        outside = ~(sums & (y >= 0).all(dim=1))
        expect_none(outside, y, "y must hold rows of at least 0 that sum to 1", "")
        return y

    def mix(self, stored: Tensor) -> Tensor:
        """Return the distribution; NaN is MASK."""
        return or_mask(stored, ~stored.isnan().any(dim=1))

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the cross entropy, of ids or of distributions."""
        return cross_entropy(logits, y if y.dim() == 1 else y.to(logits.dtype), reduction="none")

    def expected(self, logits: Tensor) -> Tensor:
        """Return the probability of each class, ``(B, C)``."""
        return Classes(self.count).expected(logits)

    def mixed(self, logits: Sequence[Tensor], shares: Shares) -> Tensor:
        """Return the log of the mean probability of each class."""
        return log_mean_probability(logits, shares)

    def decided(self, logits: Tensor) -> Tensor:
        """Return the likeliest class id, ``(B,)``."""
        return logits.argmax(dim=1)

    def words(self, logits: Tensor) -> list[str]:
        """Return the class and its probability."""
        return Classes(self.count).words(logits)
