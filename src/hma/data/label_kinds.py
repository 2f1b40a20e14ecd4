"""Raw labels of each kind: when they can be learned, which target they make, how they are cut."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hma.data.labels import (
    class_names,
    encode,
    expect_learnable,
    expect_rows,
    finite_number,
    listed,
)
from hma.data.table.columns import mean_and_std
from hma.errors import UserError
from hma.targets import Classes, Number, SoftClasses, Target, YesNo

Aim = Literal["classes", "regression", "soft"]
"""What a user may ask to be learned; several columns without a word about it are yes/no labels."""
BINS = 10
"""Parts of a quantity's range that every split gets its share of."""
ANSWERS = {"1": 1.0, "1.0": 1.0, "true": 1.0, "yes": 1.0,
           "0": 0.0, "0.0": 0.0, "false": 0.0, "no": 0.0}  # fmt: skip


class LabelKind(ABC):
    """What raw labels of one kind are good for."""

    divided: ClassVar[str]
    """How rows are divided into splits, in words."""
    several: ClassVar[bool] = False
    """Whether a row has several raw labels, a tuple."""

    @abstractmethod
    def encoded(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return the labels as a target takes them, or say which are wrong and ``where``."""

    @abstractmethod
    def target(self, y: Tensor, names: Sequence[str]) -> Target:
        """Return the target, fitted on the labels of the training rows."""

    @abstractmethod
    def groups(self, y: Tensor) -> Tensor:
        """Return the group of each row, ``(N,)``; every split gets its share of each."""

    def names(self, raw: Sequence[Any], given: tuple[str, ...]) -> tuple[str, ...]:
        """Return a name for each output; ``given`` are those of the columns."""
        return given

    def expect_learnable(self, raw: Sequence[Any], names: Sequence[str], where: str) -> None:
        """Raise where nothing can be learned from the labels, such as none."""
        expect_rows(raw)

    def missing(self, label: Any) -> bool:
        """Tell whether a row has not the label it must have."""
        return label is None

    def expect_all_in_train(self, y: Tensor, names: Sequence[str]) -> None:
        """Raise where the labels of the training rows leave out what is to be learned."""
        return


class ClassLabels(LabelKind):
    """One class for each row."""

    divided = "stratified by class, by seed: {shares}; every class in train"

    def names(self, raw: Sequence[Any], given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the classes."""
        return class_names(raw)

    def encoded(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return class ids, ``(N,)``."""
        return encode(raw, names)

    def target(self, y: Tensor, names: Sequence[str]) -> Target:
        """Return as many classes as there are names."""
        return Classes(len(names))

    def groups(self, y: Tensor) -> Tensor:
        """Return the class."""
        return y

    def expect_learnable(self, raw: Sequence[Any], names: Sequence[str], where: str) -> None:
        """Raise unless there are two classes or more, each with two rows or more."""
        expect_learnable(raw)

    def expect_all_in_train(self, y: Tensor, names: Sequence[str]) -> None:
        """Raise where a class has no training row."""
        absent = sorted(set(range(len(names))) - set(y.tolist()))
        if absent:
            several = "classes" if len(absent) > 1 else "class"
            raise UserError(
                f"{several} {listed([names[place] for place in absent])} would have no training "
                "row; add rows to train on, remove that class, or divide the rows otherwise"
            )


class NumberLabels(LabelKind):
    """One number for each row."""

    divided = "stratified by tenth of the rows in order of their number, by seed: {shares}"

    def encoded(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return the numbers, ``(N,)``."""
        remedy = "correct them, or learn classes instead"
        return torch.from_numpy(_parsed(raw, finite_number, where, "finite numbers", remedy))

    def target(self, y: Tensor, names: Sequence[str]) -> Target:
        """Return a number with mean and deviation of the training rows."""
        return Number(*mean_and_std(y.double().numpy()))

    def groups(self, y: Tensor) -> Tensor:
        """Return which part of the range, by rank."""
        shares = torch.linspace(0, 1, BINS + 1, dtype=torch.double)[1:-1]
        return torch.bucketize(y, torch.quantile(y, shares))

    def expect_learnable(self, raw: Sequence[Any], names: Sequence[str], where: str) -> None:
        """Raise where there are no rows, or all have the same number."""
        expect_rows(raw)
        y = self.encoded(raw, names, where)
        if y.min() == y.max():
            raise UserError(
                f"{where} is {float(y[0]):g} in all {len(y)} rows, so there is nothing to learn; "
                "check the target"
            )


class YesNoLabels(LabelKind):
    """Several yes/no labels for each row, any of which may be missing."""

    divided = "at random, by seed: {shares}"
    several = True

    def encoded(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return 0, 1, and NaN where missing, ``(N, T)``."""
        rule, remedy = "1 or 0, true or false, yes or no, or nothing", "correct them"
        columns = [
            _parsed([row[place] for row in raw], _answer, f"{name!r} in {where}", rule, remedy)
            for place, name in enumerate(names)
        ]
        return torch.from_numpy(np.stack(columns, axis=1)).float()

    def target(self, y: Tensor, names: Sequence[str]) -> Target:
        """Return as many yes/no labels as there are names."""
        return YesNo(len(names))

    def groups(self, y: Tensor) -> Tensor:
        """Return one group for all."""
        return torch.zeros(len(y), dtype=torch.long)

    def expect_learnable(self, raw: Sequence[Any], names: Sequence[str], where: str) -> None:
        """Raise where a label is missing in every row."""
        expect_rows(raw)
        for place, name in enumerate(names):
            if all(row[place] is None for row in raw):
                raise UserError(
                    f"{name!r} in {where} has no label in any of {len(raw)} rows; fill some in or "
                    "leave it out of the target"
                )

    def missing(self, label: Any) -> bool:
        """Return False: a row may have any of its labels, or none."""
        return False


class SoftLabels(LabelKind):
    """A distribution over classes for each row."""

    divided = "stratified by likeliest class, by seed: {shares}"
    several = True

    def encoded(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return distributions, ``(N, C)``."""
        flat = [share for row in raw for share in row]
        rule = "finite numbers"
        shares = _parsed(flat, finite_number, where, rule, "correct them", width=len(names))
        y = torch.from_numpy(shares).view(len(raw), len(names))
        wrong = ((y.sum(dim=1) - 1).abs() > 1e-3) | (y < 0).any(dim=1)
        if wrong.any():
            row = int(wrong.int().argmax())
            raise UserError(
                f"{where} must be at least 0 and sum to 1 in each row, got {y[row].tolist()} in "
                f"row {row} (counted from 0), as in {int(wrong.sum())} of {len(y)} rows; divide "
                "each row by its sum"
            )
        return y.float()

    def target(self, y: Tensor, names: Sequence[str]) -> Target:
        """Return soft labels over as many classes as there are names."""
        return SoftClasses(len(names))

    def groups(self, y: Tensor) -> Tensor:
        """Return the likeliest class."""
        return y.argmax(dim=1)

    def missing(self, label: Any) -> bool:
        """Tell whether any share is missing."""
        return any(share is None for share in label)


LABEL_KINDS: dict[str, LabelKind] = {
    Classes.kind: ClassLabels(),
    Number.kind: NumberLabels(),
    YesNo.kind: YesNoLabels(),
    SoftClasses.kind: SoftLabels(),
}
"""Kinds of labels that a source may have, by the kind of their target."""


def label_kind_for(aim: Aim | None, columns: int) -> str:
    """Return the kind of labels that stand in so many columns and are to be learned as ``aim``.

    Example:
        >>> label_kind_for(None, 1), label_kind_for(None, 3), label_kind_for("regression", 1)
        ('classes', 'yes/no', 'number')
    """
    if aim not in (None, *get_args(Aim)):
        allowed = ", ".join(map(repr, get_args(Aim)))
        raise UserError(f"task must be one of {allowed}, got {aim!r}")
    several = columns > 1
    if several == (aim == "soft") or aim is None:
        return {None: YesNo.kind if several else Classes.kind, "soft": SoftClasses.kind,
                "classes": Classes.kind, "regression": Number.kind}[aim]  # fmt: skip
    wanted = "a column for each class" if aim == "soft" else "one target column"
    raise UserError(f"task {aim!r} needs {wanted}, got {columns}; leave task out for yes/no labels")


def _parsed(
    raw: Sequence[str | None],
    read: Callable[[str | None], float | None],
    where: str,
    rule: str,
    remedy: str,
    width: int = 1,
) -> Any:
    """Return all labels read as numbers, or name the first that is none and count them."""
    numbers = [read(label) for label in raw]
    wrong = [place for place, value in enumerate(numbers) if value is None]
    if wrong:
        raise UserError(
            f"{where} must hold {rule}, got {listed([raw[wrong[0]]])} in row {wrong[0] // width} "
            f"(counted from 0), as in {len({place // width for place in wrong})} of "
            f"{len(raw) // width} rows; {remedy}"
        )
    return np.array(numbers, dtype=np.float64)


def _answer(text: str | None) -> float | None:
    return math.nan if text is None else ANSWERS.get(text.strip().lower())
