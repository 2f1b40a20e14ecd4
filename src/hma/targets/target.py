"""What a target is: all that a model asks about its labels."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from hma.errors import UserError


def or_mask(coefficients: Tensor, known: Tensor) -> Tensor:
    """Append the column of MASK: rows that are not known take MASK and nothing else."""
    known = known[:, None]
    kept = torch.where(known, coefficients, 0.0)
    return torch.cat([kept, (~known).to(kept.dtype)], dim=1)  # (N, R) -> (N, R + 1)


def expect_count(name: str, count: object, why: str, least: int = 1) -> None:
    """Raise unless ``count`` is a whole number of at least ``least``."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise ValueError(f"{name} must be at least {least} ({why}), got {count!r}")


def expect_added(added: object, count: int) -> None:
    """Raise unless ``added`` classes of ``count`` leave two or more that a head knows."""
    if added == 0:
        return
    expect_count("added", added, "classes that a head does not know", least=0)
    expect_count("count - added", count - cast("int", added), "classes that a head knows", least=2)


def expect_rows(y: Tensor, *shape: int) -> None:
    """Raise unless ``y`` has this shape."""
    if tuple(y.shape) != shape:
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(f"y must have shape ({wanted}), got {tuple(y.shape)}")


def expect_none(outside: Tensor, y: Tensor, rule: str, remedy: str) -> None:
    """Raise if any row is ``outside``; on a device other than the CPU without waiting for it."""
    ending = f"; {remedy}" if remedy else ""
    if y.device.type != "cpu":  # reading the answer back would stall the device
        torch._assert_async(~outside.any(), rule + ending)
    elif outside.any():
        row = int(outside.nonzero()[0, 0])
        got = f"{y[row].tolist()}" + (f" in row {row}" if y.dim() > 1 else "")
        raise ValueError(f"{rule}, got {got}{ending}")


Shares = Sequence[float] | Tensor
"""What each answer counts, ``(M,)`` or for each row ``(M, B)``: at least 0, summing to 1."""


def mean_output(logits: Sequence[Tensor], shares: Shares) -> Tensor:
    """Return the weighted mean of outputs, ``(B, outputs)`` each."""
    stacked, weights = _stacked(logits, shares)
    return (weights * stacked).sum(dim=0)


def log_mean_probability(logits: Sequence[Tensor], shares: Shares) -> Tensor:
    """Return the logarithm of the weighted mean probability of each class, ``(B, C)``."""
    stacked, weights = _stacked(logits, shares)
    return (stacked.log_softmax(dim=2) + weights.log()).logsumexp(dim=0)  # (M, B, C) -> (B, C)


def log_odds_of_mean(logits: Sequence[Tensor], shares: Shares) -> Tensor:
    """Return the log odds of the weighted mean probability of each yes, ``(B, T)``."""
    stacked, weights = _stacked(logits, shares)
    yes, no = ((logsigmoid(said) + weights.log()).logsumexp(dim=0) for said in (stacked, -stacked))
    return yes - no


def _stacked(logits: Sequence[Tensor], shares: Shares) -> tuple[Tensor, Tensor]:
    """Return the answers as ``(M, B, outputs)`` and their shares as ``(M, 1 or B, 1)``."""
    if len(logits) == 0 or len(shares) != len(logits):
        raise ValueError(
            f"shares must hold one number for each of {len(logits)} answers, got {len(shares)}"
        )
    stacked = torch.stack(list(logits))
    stacked = stacked.to(torch.promote_types(stacked.dtype, torch.float32))
    weights = torch.as_tensor(shares, dtype=stacked.dtype, device=stacked.device)
    return stacked, weights.reshape(len(logits), -1, 1)


NO_VOTE = 1e-3
"""Votes that are spread over all classes beside those of rows, which sum to 1 at most."""
SILENT = -1e4
"""Logit of a class that nobody knows: a probability of 0, and finite."""
UNKNOWN = -1
"""Class id or sample id of a row whose writer did not know it."""


@dataclass(frozen=True)
class Target(ABC):
    """A kind of label; a subclass says what is special about it, all in one place.

    Shape:
        - ``y``: labels as a user gives them; *stored*: as the memory keeps them, ``(N, ...)``.
        - logits: ``(B, outputs)``.
    """

    kind: ClassVar[str]
    gives_probabilities: ClassVar[bool] = True
    """Whether :meth:`expected` gives probabilities; otherwise an amount, in its own unit."""
    picks_one: ClassVar[bool] = True
    """Whether one output is the answer, the likeliest; otherwise each answers for itself."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of logits."""

    @property
    @abstractmethod
    def table_rows(self) -> int:
        """Rows of the label table, MASK not counted."""

    @abstractmethod
    def unknown(self, count: int) -> Tensor:
        """Return ``count`` stored labels that nobody knows."""

    @abstractmethod
    def prototypes(self) -> Tensor:
        """Return the stored labels that slots stand for, ``(P, ...)``."""

    @abstractmethod
    def check(self, y: Tensor, count: int, ignore: Tensor | None = None) -> Tensor:
        """Return labels of ``count`` rows as they are stored, or say what does not fit.

        Rows marked in ``ignore`` are not looked at; what is returned for them means nothing.
        """

    @abstractmethod
    def mix(self, stored: Tensor) -> Tensor:
        """Return what each label takes of each row of the label table, ``(N, table_rows + 1)``."""

    @abstractmethod
    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, ``(B,)``."""

    @abstractmethod
    def expected(self, logits: Tensor) -> Tensor:
        """Return probabilities of classes or labels, or the value of a number, row by row."""

    @abstractmethod
    def decide(self, logits: Tensor) -> Tensor:
        """Return predictions in the form of ``y``."""

    @abstractmethod
    def words(self, logits: Tensor) -> list[str]:
        """Return each prediction in a few words."""

    def membership(self, stored: Tensor) -> Tensor:
        """Return how far each label belongs to each prototype, ``(N, P)``; 0 where unknown.

        By default a prototype stands for one row of the label table.
        """
        return self.mix(stored)[:, :-1]

    def ballots(self, stored: Tensor) -> Tensor:
        """Return what each label adds to a vote, ``(N, V)``; nothing where it is unknown.

        By default a prototype gets what belongs to it.
        """
        return self.membership(stored)

    @property
    def ballot_width(self) -> int:
        """Numbers in a ballot, ``V``."""
        return self.ballots(self.unknown(0)).shape[1]

    @property
    def beyond_head(self) -> int:
        """How many outputs, the last ones, only stored rows can answer with: classes added since.

        A head knows nothing of them, see :mod:`hma.vote.added_classes`.
        """
        return 0

    def stated(self, stored: Tensor) -> Tensor:
        """Return what each label says in the form of :meth:`expected`; NaN where it is unknown.

        A vote is the mean of these, weighted, with ``NO_VOTE`` of a vote that knows nothing:
        ``expected(tally(w @ ballots)) = (w @ stated + NO_VOTE * even) / (sum w + NO_VOTE)``.
        """
        belongs = self.membership(stored)  # (N, P)
        known = belongs.sum(dim=1, keepdim=True) > 0
        return torch.where(known, belongs, torch.nan)

    def apart(self, stated: Tensor, said: Tensor) -> Tensor:
        """Return how far labels are from answers, both in the form of :meth:`expected`.

        By default what two distributions do not share, 0 to 1: of a class, the probability of all
        others. NaN where a label is unknown.
        """
        return (stated - said).abs().sum(dim=-1) / 2

    def unshared(self, stored: Tensor) -> Tensor:
        """Tell which labels no other of ``stored`` has, or has a part of; as :meth:`stated`."""
        belongs = self.membership(stored)  # (N, P)
        others = belongs.sum(dim=0) - belongs
        return ((belongs * others).sum(dim=1) == 0)[:, None]

    def tally(self, votes: Tensor) -> Tensor:
        """Return weighted sums of ballots as logits, ``(B, V)`` to ``(B, outputs)``.

        By default the logarithm of each class's share; without any vote they are equal, and
        nothing for classes that a head does not know.
        """
        known = votes.shape[1] - self.beyond_head
        if self.beyond_head:
            even = torch.arange(votes.shape[1], device=votes.device) < known
            votes = votes.to(torch.promote_types(votes.dtype, torch.float32))
            least = torch.finfo(votes.dtype).tiny  # nothing, but with a logarithm
            share = (votes + even * (NO_VOTE / known)).clamp(min=least)
        else:
            share = votes + NO_VOTE / known
        return share.log() - share.sum(dim=1, keepdim=True).log()

    def wanted(self, stored: Tensor) -> Tensor:
        """Return what a regression is to say of each label, ``(N, O)``; NaN where it is unknown.

        By default the probability of each class.
        """
        return self.stated(stored)

    def from_scores(self, scores: Tensor, sharpness: float | Tensor, known: Tensor) -> Tensor:
        """Return what a regression on :meth:`wanted` says, ``(B, O)`` to logits ``(B, outputs)``.

        Args:
            scores: About what was wanted.
            sharpness: What scores are multiplied with.
            known: Outputs that any row has, ``(O,)``; no other is answered with.
        """
        return (sharpness * scores).masked_fill(~known, SILENT)

    def embed(self, stored: Tensor, table: Tensor) -> Tensor:
        """Return the embedding of stored labels, ``(N, ...)`` and ``(rows + 1, L)`` to ``(N, L)``.

        Args:
            stored: Labels as the memory keeps them.
            table: The label table, MASK last.
        """
        return self.mix(stored).to(table.dtype) @ table

    def mix_logits(self, logits: Sequence[Tensor], shares: Shares) -> Tensor:
        """Return the logits of one answer in which each of several counts its share.

        By default the weighted mean of the outputs; where they stand for probabilities those are
        mixed instead.

        Args:
            logits: Of each answer, ``(B, outputs)``.
            shares: What each counts: at least 0, summing to 1.
        """
        return mean_output(logits, shares)

    def given(self, stored: Tensor) -> Tensor:
        """Return stored labels in the form of ``y``."""
        return stored

    # ------------------------------------------------------------------- rows by group, and words

    def given_membership(self, y: Tensor) -> Tensor:
        """Return :meth:`membership` of labels as a user gives them, ``(N, P)`` in float64."""
        y = y.detach().cpu()
        if len(y) == 0:
            return torch.zeros(0, len(self.prototypes()), dtype=torch.float64)
        unknown = y.isnan() if y.is_floating_point() else y < 0
        unknown = unknown.flatten(1).all(dim=1) if y.dim() > 1 else unknown
        known = self.membership(self.check(y, len(y), ignore=unknown))
        return torch.where(unknown[:, None], 0, known).double()

    def belongs(self, y: Tensor) -> Tensor:
        """Tell which prototypes each label as given belongs to most, ``(N, P)``."""
        shares = self.given_membership(y)
        return (shares > 0) & (shares == shares.amax(dim=1, keepdim=True))

    @property
    def description(self) -> str:
        """What a model answers, in words."""
        return f"`{type(self).__name__}`"

    def group_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the name of each prototype; ``names`` are those of the outputs."""
        return tuple(names)

    def label_text(self, names: Sequence[str], label: Any) -> str:
        """Return the label of a row in words, empty where it is unknown."""
        return names[int(label)] if label >= 0 else ""

    def answer_text(self, names: Sequence[str], expected: Any) -> str:
        """Return in words what :meth:`expected` gives for a row."""
        best = max(range(len(expected)), key=expected.__getitem__)
        return f"{names[best]} ({100 * expected[best]:.1f}%)"

    def grown(self, count: int) -> Self:
        """Return the target with ``count`` more classes, which only stored rows answer with."""
        raise UserError(f"classes cannot be added to labels of the kind {self.kind!r}")

    def to_json(self) -> dict[str, Any]:
        """Return the target in JSON values, for :func:`target_from_json`."""
        fields = {n: v for n, v in asdict(self).items() if n != "added" or v}  # as before it was
        return {"kind": self.kind} | fields
