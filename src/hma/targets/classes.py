"""Classes: one out of several, one logit for two, or a distribution over them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, embedding, one_hot

from hma.targets.target import (
    UNKNOWN,
    Shares,
    Target,
    expect_added,
    expect_count,
    expect_none,
    expect_rows,
    log_mean_probability,
    log_odds_of_mean,
    or_mask,
)


@dataclass(frozen=True)
class ClassTarget(Target):
    """What all labels over ``count`` classes share: a probability for each class.

    Args:
        count: Number of classes.
        added: How many of them, the last ones, were added to a trained model, see
            :mod:`hma.vote.added_classes`.
    """

    count: int
    added: int = field(default=0, repr=False)

    @property
    def beyond_head(self) -> int:
        """Classes that were added."""
        return self.added

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.count

    def grown(self, count: int) -> Self:
        """Return the target with ``count`` more classes, which only stored rows answer with."""
        return replace(self, count=self.count + count, added=self.added + count)

    def expected(self, logits: Tensor) -> Tensor:
        """Return the probability of each class, ``(B, C)``; one logit gives two columns."""
        if self.count > 1:
            return logits.float().softmax(dim=1)
        positive = logits.float().sigmoid()
        return torch.cat([1 - positive, positive], dim=1)  # (B, 1) -> (B, 2)

    def mix_logits(self, logits: Sequence[Tensor], shares: Shares) -> Tensor:
        """Return the log of the mean probability of each class; of one logit its log odds."""
        return (log_mean_probability if self.count > 1 else log_odds_of_mean)(logits, shares)

    def decide(self, logits: Tensor) -> Tensor:
        """Return the likeliest class id, ``(B,)``."""
        return self.expected(logits).argmax(dim=1)

    def words(self, logits: Tensor) -> list[str]:
        """Return the class and its probability."""
        best = self.expected(logits).max(dim=1)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [f"class {label} ({share:.0%})" for label, share in pairs]

    @property
    def description(self) -> str:
        """How many classes."""
        return f"one of {self.table_rows:,} classes"


@final
@dataclass(frozen=True)
class Classes(ClassTarget):
    """One of ``count`` classes, given by its id.

    Args:
        count: Number of classes; 1 is a binary problem with one logit.
        added: How many of them, the last ones, were added to a trained model, see
            :mod:`hma.vote.added_classes`.

    Example:
        >>> target = Classes(3)
        >>> target.loss(torch.zeros(2, 3), torch.tensor([0, 2]))
        tensor([1.0986, 1.0986])
        >>> target.check(torch.tensor([0, 3]), count=2)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: y must hold class ids from 0 to 2, got 3; leave ...
    """

    kind: ClassVar[str] = "classes"

    def __post_init__(self) -> None:
        expect_count("num_classes", self.count, "one logit is binary")
        expect_added(self.added, self.count)

    @property
    def table_rows(self) -> int:
        """A row for each class; one logit still tells two classes apart."""
        return max(self.count, 2)

    def unknown(self, count: int) -> Tensor:
        """Return the id -1."""
        return torch.full((count,), UNKNOWN)

    def prototypes(self) -> Tensor:
        """Return each class once."""
        return torch.arange(self.table_rows)

    def check(self, y: Tensor, count: int, ignore: Tensor | None = None) -> Tensor:
        """Return class ids."""
        if ignore is not None and y.shape == ignore.shape:
            y = y.masked_fill(ignore, 0)
        if y.dtype.is_floating_point or y.dtype.is_complex:
            raise TypeError(
                f"y must hold class ids of an integer dtype, got {y.dtype} of shape "
                f"{tuple(y.shape)}; for soft labels build the model with "
                "target=hma.targets.SoftClasses(...), for 0/1 floats pass y.long()"
            )
        expect_rows(y, count)
        rule = f"y must hold class ids from 0 to {self.table_rows - 1}"
        outside = (y < 0) | (y >= self.table_rows)
        expect_none(outside, y, rule, "leave such rows out (`ignore`) or add classes")
        return y.long()

    def mix(self, stored: Tensor) -> Tensor:
        """Return a one-hot row for each id; -1 is MASK."""
        rows = self.table_rows + 1
        return one_hot(stored % rows, rows).to(torch.float32)

    def embed(self, stored: Tensor, table: Tensor) -> Tensor:
        """Look the ids up: as :meth:`mix` has it, without the product."""
        return embedding(stored % (self.table_rows + 1), table)

    def tally(self, votes: Tensor) -> Tensor:
        """Return the logarithm of each class's share; for one logit how far the second is ahead."""
        shares = super().tally(votes)
        return shares if self.count > 1 else shares[:, 1:] - shares[:, :1]

    def from_scores(self, scores: Tensor, sharpness: float | Tensor, known: Tensor) -> Tensor:
        """Return scores as logits; for one logit how far the second is ahead."""
        logits = super().from_scores(scores, sharpness, known)
        return logits if self.count > 1 else logits[:, 1:] - logits[:, :1]

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the cross entropy."""
        if self.count > 1:
            return cross_entropy(logits, y, reduction="none")
        return binary_cross_entropy_with_logits(logits[:, 0], y.to(logits.dtype), reduction="none")


# -------------------------------------------------------------------------------------- soft labels


@final
@dataclass(frozen=True)
class SoftClasses(ClassTarget):
    """A distribution over ``count`` classes, as mixing rows makes it; class ids are taken too.

    Args:
        count: Number of classes, 2 or more.
        added: How many of them, the last ones, were added to a trained model, see
            :mod:`hma.vote.added_classes`.

    Example:
        >>> target = SoftClasses(2)
        >>> target.check(torch.tensor([[0.25, 0.75]]), count=1)
        tensor([[0.2500, 0.7500]])
        >>> target.check(torch.tensor([[0.5, 0.75]]), count=1)
        Traceback (most recent call last):
        ValueError: y must hold rows of at least 0 that sum to 1, got [0.5, 0.75] in row 0
    """

    kind: ClassVar[str] = "soft classes"

    def __post_init__(self) -> None:
        expect_count("count", self.count, "a soft label lies between classes", least=2)
        expect_added(self.added, self.count)

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

    def check(self, y: Tensor, count: int, ignore: Tensor | None = None) -> Tensor:
        """Return distributions."""
        if y.dim() == 1:
            ids = Classes(self.count).check(y, count, ignore)
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

    def decide(self, logits: Tensor) -> Tensor:
        """Return the likeliest class id, ``(B,)``."""
        return logits.argmax(dim=1)

    @property
    def description(self) -> str:
        """How many classes."""
        return f"shares of {self.count:,} classes"

    def label_text(self, names: Sequence[str], label: Any) -> str:
        """Return the classes that have a share; of a class id its class."""
        if not isinstance(label, list):
            return super().label_text(names, label)
        shares = [(name, share) for name, share in zip(names, label, strict=True) if share > 0]
        return ", ".join(f"{name} {share:.0%}" for name, share in shares)
