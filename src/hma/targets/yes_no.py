"""Several yes/no labels, some of them missing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from hma.targets.target import (
    NO_VOTE,
    UNKNOWN,
    Shares,
    Target,
    expect_count,
    expect_none,
    expect_rows,
    log_odds_of_mean,
    or_mask,
)


@final
@dataclass(frozen=True)
class YesNo(Target):
    """Several yes/no labels, any of which may be missing.

    ``y`` is ``(B, count)`` of 0 and 1; missing is NaN, or -1 where the dtype has no NaN. A
    row's loss is the mean over the labels it has, 0 if it has none.

    Args:
        count: Number of labels, ``T``.

    Example:
        >>> target = YesNo(2)
        >>> y = torch.tensor([[1.0, 0.0], [1.0, float("nan")]])
        >>> target.loss(torch.tensor([[0.0, 0.0], [2.0, -9.0]]), y)
        tensor([0.6931, 0.1269])
    """

    kind: ClassVar[str] = "yes/no"
    picks_one: ClassVar[bool] = False
    count: int

    def __post_init__(self) -> None:
        expect_count("count", self.count, "labels of a row")

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return self.count

    @property
    def table_rows(self) -> int:
        """Two rows for each label: no, then yes."""
        return 2 * self.count

    def unknown(self, count: int) -> Tensor:
        """Return rows of NaN."""
        return torch.full((count, self.count), math.nan)

    def prototypes(self) -> Tensor:
        """Return rows that know one label each: no, then yes, label by label."""
        rows = self.unknown(self.table_rows)  # (2T, T)
        places = torch.arange(self.table_rows)
        rows[places, places // 2] = (places % 2).to(rows.dtype)
        return rows

    def check(self, y: Tensor, count: int, ignore: Tensor | None = None) -> Tensor:
        """Return 0, 1 and NaN."""
        if y.dim() == 1 and self.count == 1:
            y = y[:, None]
        expect_rows(y, count, self.count)
        y = self._with_nan(y)
        if ignore is not None:
            y = y.masked_fill(ignore[:, None], math.nan)
        outside = ~((y == 0) | (y == 1) | y.isnan()).all(dim=1)
        expect_none(outside, y, "y must hold 0, 1, and NaN or -1 where missing", "")
        return y

    def _with_nan(self, y: Tensor) -> Tensor:
        wide = y.to(torch.promote_types(y.dtype, torch.float32))
        return wide if y.dtype.is_floating_point else wide.masked_fill(y == UNKNOWN, math.nan)

    def mix(self, stored: Tensor) -> Tensor:
        """Return the mean of the rows of the labels that are known; MASK if none is."""
        count = (~stored.isnan()).sum(dim=1, keepdim=True)
        return or_mask(self.ballots(stored) / count.clamp(min=1), count[:, 0] > 0)

    def ballots(self, stored: Tensor) -> Tensor:
        """Return a no or a yes for each label that is known, ``(N, 2T)``."""
        known, yes = ~stored.isnan(), stored.nan_to_num()
        return torch.stack([(1 - yes) * known, yes * known], dim=2).flatten(1)

    def stated(self, stored: Tensor) -> Tensor:
        """Return 1 for a yes and 0 for a no, ``(N, T)``."""
        return stored

    def apart(self, stated: Tensor, said: Tensor) -> Tensor:
        """Return the largest difference over the labels that are known."""
        each = (stated - said).abs()
        known = ~each.isnan()
        return torch.where(known, each, 0.0).amax(dim=-1).where(known.any(dim=-1), torch.nan)

    def unshared(self, stored: Tensor) -> Tensor:
        """Tell which answers to which labels no other row gives, ``(N, T)``."""
        given = self.ballots(stored)  # (N, 2T)
        once = given * (given.sum(dim=0) == 1)
        return once.view(-1, self.count, 2).sum(dim=2) > 0

    def tally(self, votes: Tensor) -> Tensor:
        """Return how far yes is ahead of no, label by label."""
        no, yes = (votes + NO_VOTE / 2).view(-1, self.count, 2).log().unbind(dim=2)  # (B, T) each
        return yes - no

    def from_scores(self, scores: Tensor, sharpness: float | Tensor, known: Tensor) -> Tensor:
        """Return how far each score is ahead of even, as log odds."""
        return sharpness * (2 * scores - 1)

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean binary cross entropy over the labels that are known."""
        y = self._with_nan(y).reshape(logits.shape)
        known = ~y.isnan()
        each = binary_cross_entropy_with_logits(
            logits, y.nan_to_num().to(logits.dtype), reduction="none"
        )
        return (each * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)

    def expected(self, logits: Tensor) -> Tensor:
        """Return the probability of each yes, ``(B, T)``."""
        return logits.float().sigmoid()

    def mix_logits(self, logits: Sequence[Tensor], shares: Shares) -> Tensor:
        """Return the log odds of the mean probability of each yes."""
        return log_odds_of_mean(logits, shares)

    def decide(self, logits: Tensor) -> Tensor:
        """Return 0 or 1 for each label, ``(B, T)``."""
        return (logits > 0).long()

    def words(self, logits: Tensor) -> list[str]:
        """Return the labels that are answered with yes."""
        rows = (row.nonzero()[:, 0].tolist() for row in logits > 0)
        return [f"yes to {', '.join(map(str, yes))}" if yes else "yes to none" for yes in rows]

    @property
    def description(self) -> str:
        """How many labels."""
        return f"{self.count:,} yes/no labels"

    def group_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return a no and a yes for each label.

        Example:
            >>> YesNo(2).group_names(["toxic", "soluble"])
            ('toxic: no', 'toxic: yes', 'soluble: no', 'soluble: yes')
        """
        return tuple(f"{name}: {said}" for name in names for said in ("no", "yes"))

    def label_text(self, names: Sequence[str], label: Any) -> str:
        """Return the labels that are known.

        Example:
            >>> YesNo(3).label_text(["a", "b", "c"], [1.0, 0.0, float("nan")])
            'yes to a, no to b'
        """
        pairs = zip(names, label, strict=True)
        known = [(name, value) for name, value in pairs if not math.isnan(value)]
        return ", ".join(f"{'yes' if value else 'no'} to {name}" for name, value in known)

    def answer_text(self, names: Sequence[str], expected: Any) -> str:
        """Return each label's answer and how sure it is.

        Example:
            >>> YesNo(2).answer_text(["toxic", "soluble"], [0.9, 0.25])
            'toxic yes (90.0%), soluble no (75.0%)'
        """
        said = [
            f"{name} {'yes' if share > 0.5 else 'no'} ({100 * max(share, 1 - share):.1f}%)"
            for name, share in zip(names, expected, strict=True)
        ]
        return ", ".join(said)
