"""Labels as people write them, the kinds there are, and how they become what a target takes."""

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hma.errors import UserError
from hma.targets import Classes, Number, SoftClasses, Target, YesNo

SHOWN = 10
MANY_NUMBERS = 20
"""So many different numbers look like a quantity rather than classes."""
Aim = Literal["classes", "regression", "soft"]
"""What a user may ask to learn; by default one column holds classes, several hold yes/no labels."""
BINS = 10
"""Parts of a quantity's range that every split gets its share of."""
ANSWERS = {"1": 1.0, "1.0": 1.0, "true": 1.0, "yes": 1.0,
           "0": 0.0, "0.0": 0.0, "false": 0.0, "no": 0.0}  # fmt: skip


def class_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels: by value if all are numbers, else alphabetically.

    Example:
        >>> class_names(["10", "9", "9.0"]), class_names(["b", "10", "9"])
        (('9', '10'), ('10', '9', 'b'))
    """
    names = sorted(set(labels))
    if any(finite_number(name) is None for name in names):
        return tuple(names)
    return tuple(
        sorted(set(map(whole, names)), key=lambda name: (finite_number(name) or 0.0, name))
    )


def whole(text: str) -> str:
    """Drop the decimals that some programs add to whole numbers; other text is unchanged.

    Example:
        >>> whole("1.0"), whole("1"), whole("1.5"), whole("007"), whole("1.0a")
        ('1', '1', '1.5', '007', '1.0a')
    """
    found = re.fullmatch(r"(-?\d+)\.0*", text)
    return text if found is None else found[1]


def is_quantity(names: Sequence[str]) -> bool:
    """Tell whether the classes are so many different numbers that they look like a quantity."""
    return len(names) >= MANY_NUMBERS and all(finite_number(name) is not None for name in names)


def expect_rows(labels: Sequence[object]) -> None:
    """Raise if there are no rows."""
    if not labels:
        raise UserError("there are no rows to learn from; give a source with labelled rows")


def expect_present(missing: Sequence[int], rows: int, where: str) -> None:
    """Raise if any row has no label.

    Args:
        missing: Rows without a label, counted from 0.
        rows: Number of rows in all.
        where: What holds the labels, such as "column 'y' of data.csv".
    """
    if missing:
        raise UserError(
            f"{where} has no label in {len(missing)} of {rows} rows, first in row "
            f"{listed(missing)} (counted from 0); fill them in, remove these rows, or leave them "
            "out with --skip-missing-labels"
        )


def encode(labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Return the class id of each label, ``(N,)``; ``1`` and ``1.0`` are one class.

    Example:
        >>> encode(["b", "a"], classes=("a", "b")), encode(["1.0"], classes=("0", "1"))
        (tensor([1, 0]), tensor([1]))
    """
    known = {whole(name): place for place, name in enumerate(classes)}
    known |= {name: place for place, name in enumerate(classes)}
    ids = {label: known.get(label, known.get(whole(label))) for label in set(labels)}
    unknown = [label for label in labels if ids[label] is None]
    if unknown:
        raise UserError(
            f"label {unknown[0]!r} was not among the classes at training, as in {len(unknown)} of "
            f"{len(labels)} rows; known are {listed(classes)}"
        )
    return torch.tensor([ids[label] for label in labels], dtype=torch.long)


def label_text(value: object) -> str | None:
    """Return a label of any scalar type as text; None where it is missing.

    Example:
        >>> [label_text(value) for value in (3, 3.0, 0.5, "3.0", True, float("nan"), None, "")]
        ['3', '3', '0.5', '3.0', 'True', None, None, None]
    """
    if value is None or value == "":
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return str(int(value)) if value.is_integer() else repr(float(value))
    return str(value)


def listed(values: Sequence[object], shown: int = SHOWN) -> str:
    """Join the values, or the first few if there are many.

    Example:
        >>> listed([3, 4]), listed("abc", shown=2)
        ('3, 4', "'a', 'b' and 1 more")
    """
    text = ", ".join(repr(value) for value in values[:shown])
    return text if len(values) <= shown else f"{text} and {len(values) - shown} more"


def finite_number(text: str | None) -> float | None:
    """Return the number that a text spells out; None if it is not a finite number."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class LabelKind(ABC):
    """One kind of raw labels: how they are checked, encoded, divided and learned."""

    how_divided: ClassVar[str]
    """How rows are divided into splits, in words."""
    several: ClassVar[bool] = False
    """Whether a row has several raw labels, a tuple."""

    @abstractmethod
    def encode(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
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
        """Raise if nothing can be learned from the labels."""
        expect_rows(raw)

    def is_missing(self, label: Any) -> bool:
        """Tell whether a row lacks a label that it must have."""
        return label is None

    def expect_all_in_train(self, y: Tensor, names: Sequence[str]) -> None:
        """Raise if the training rows leave out something that is to be learned."""
        return

    def count(self, raw: Sequence[Any], everything: Sequence[Any]) -> dict[str, int]:
        """Return how many rows there are of each class that ``everything`` has, or in all."""
        return {"all": len(raw)}

    def suspicion(self, raw: Sequence[Any], where: str) -> str:
        """Return a warning if the labels look like another kind, else an empty text."""
        return ""


class ClassLabels(LabelKind):
    """One class for each row."""

    how_divided = "stratified by class, by seed: {shares}; every class in train"

    def names(self, raw: Sequence[Any], given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the classes."""
        return class_names(raw)

    def encode(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
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
        expect_rows(raw)
        classes = class_names(raw)
        counts = Counter(classes[place] for place in encode(raw, classes).tolist())
        if len(counts) == 1:
            raise UserError(
                f"all {len(raw)} rows have the label {raw[0]!r}; a classifier needs two classes "
                "or more: check the target, or add rows of another class"
            )
        alone = [name for name in classes if counts[name] == 1]
        numbers = all(finite_number(name) is not None for name in classes)
        continuous = numbers and (len(alone) > len(classes) / 2 or is_quantity(classes))
        quantity = "; is the target a quantity rather than a class? Then use --task regression"
        hint = quantity if continuous else ""
        if len(alone) == 1:
            raise UserError(
                f"class {alone[0]!r} has one row only, so it cannot be both learned and tested; "
                f"add rows of that class or remove it{hint}"
            )
        if alone:
            raise UserError(
                f"{len(alone)} of {len(counts)} classes have one row only ({listed(alone)}), so "
                f"they cannot be both learned and tested; add rows or remove these classes{hint}"
            )

    def expect_all_in_train(self, y: Tensor, names: Sequence[str]) -> None:
        """Raise if a class has no training row."""
        absent = sorted(set(range(len(names))) - set(y.tolist()))
        if absent:
            several = "classes" if len(absent) > 1 else "class"
            raise UserError(
                f"{several} {listed([names[place] for place in absent])} would have no training "
                "row; add rows to train on, remove that class, or divide the rows otherwise"
            )

    def count(self, raw: Sequence[Any], everything: Sequence[Any]) -> dict[str, int]:
        """Return how many rows there are of each class."""
        found = Counter(map(whole, raw))
        return {name: found[name] for name in class_names(list(map(whole, everything)))}

    def suspicion(self, raw: Sequence[Any], where: str) -> str:
        """Warn if the classes are probably values of a quantity."""
        names = class_names(raw)
        if not is_quantity(names):
            return ""
        return (
            f"{where}: {len(names)} numbers taken as classes, a quantity? Then use --task "
            "regression"
        )


class NumberLabels(LabelKind):
    """One number for each row."""

    how_divided = "stratified by tenth of the rows in order of their number, by seed: {shares}"

    def encode(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return the numbers, ``(N,)``."""
        remedy = "correct them, or learn classes instead"
        return torch.from_numpy(_parse_numbers(raw, finite_number, where, "finite numbers", remedy))

    def target(self, y: Tensor, names: Sequence[str]) -> Target:
        """Return a number with mean and deviation of the training rows."""
        return Number(*mean_and_std(y.double().numpy()))

    def groups(self, y: Tensor) -> Tensor:
        """Return which part of the range, by rank."""
        shares = torch.linspace(0, 1, BINS + 1, dtype=torch.double)[1:-1]
        return torch.bucketize(y, torch.quantile(y, shares))

    def expect_learnable(self, raw: Sequence[Any], names: Sequence[str], where: str) -> None:
        """Raise if there are no rows, or all have the same number."""
        expect_rows(raw)
        y = self.encode(raw, names, where)
        if y.min() == y.max():
            raise UserError(
                f"{where} is {float(y[0]):g} in all {len(y)} rows, so there is nothing to learn; "
                "check the target"
            )


class YesNoLabels(LabelKind):
    """Several yes/no labels for each row, any of which may be missing."""

    how_divided = "at random, by seed: {shares}"
    several = True

    def encode(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return 0, 1, and NaN where missing, ``(N, T)``."""
        rule, remedy = "1 or 0, true or false, yes or no, or nothing", "correct them"
        columns = [
            _parse_numbers(
                [row[place] for row in raw], _answer, f"{name!r} in {where}", rule, remedy
            )
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
        """Raise if a label is missing in every row."""
        expect_rows(raw)
        for place, name in enumerate(names):
            if all(row[place] is None for row in raw):
                raise UserError(
                    f"{name!r} in {where} has no label in any of {len(raw)} rows; fill some in or "
                    "leave it out of the target"
                )

    def is_missing(self, label: Any) -> bool:
        """Return False: a row may have any of its labels, or none."""
        return False


class SoftLabels(LabelKind):
    """A distribution over classes for each row."""

    how_divided = "stratified by likeliest class, by seed: {shares}"
    several = True

    def encode(self, raw: Sequence[Any], names: Sequence[str], where: str) -> Tensor:
        """Return distributions, ``(N, C)``."""
        flat = [share for row in raw for share in row]
        rule = "finite numbers"
        shares = _parse_numbers(flat, finite_number, where, rule, "correct them", width=len(names))
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

    def is_missing(self, label: Any) -> bool:
        """Tell whether any share is missing."""
        return any(share is None for share in label)


CLASSES, NUMBER, YES_NO, SOFT = ClassLabels(), NumberLabels(), YesNoLabels(), SoftLabels()
LABEL_KINDS: dict[str, LabelKind] = {
    Classes.kind: CLASSES,
    Number.kind: NUMBER,
    YesNo.kind: YES_NO,
    SoftClasses.kind: SOFT,
}
"""Kinds of labels by the kind of their target."""


def label_kind_for(aim: Aim | None, columns: int) -> LabelKind:
    """Return the kind of labels that fill this many columns and are learned as ``aim``.

    Example:
        >>> label_kind_for(None, 1) is CLASSES, label_kind_for(None, 3) is YES_NO
        (True, True)
    """
    if aim not in (None, *get_args(Aim)):
        allowed = ", ".join(map(repr, get_args(Aim)))
        raise UserError(f"task must be one of {allowed}, got {aim!r}")
    several = columns > 1
    if several == (aim == "soft") or aim is None:
        usual = YES_NO if several else CLASSES
        return {None: usual, "soft": SOFT, "classes": CLASSES, "regression": NUMBER}[aim]
    wanted = "a column for each class" if aim == "soft" else "one target column"
    raise UserError(f"task {aim!r} needs {wanted}, got {columns}; leave task out for yes/no labels")


def _parse_numbers(
    raw: Sequence[str | None],
    read: Callable[[str | None], float | None],
    where: str,
    rule: str,
    remedy: str,
    width: int = 1,
) -> Any:
    """Parse labels as numbers; raise with the first that is not a number and their count."""
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


def mean_and_std(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and standard deviation without overflow; 1 for the deviation of a constant.

    Example:
        >>> mean_and_std(np.array([0.0, 4.0])), mean_and_std(np.array([7.0, 7.0]))
        ((2.0, 2.0), (7.0, 1.0))
    """
    if values.min() == values.max():
        return float(values[0]), 1.0
    scale = float(np.abs(values).max())
    mean, std = float((values / scale).mean()), float((values / scale).std())
    return mean * scale, std * scale or 1.0
