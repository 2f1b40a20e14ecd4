"""Labels as people write them, and the class ids that stand for them."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from hma.errors import UserError

SHOWN = 10
MANY_NUMBERS = 20
"""Numbers that are rather values of a quantity than classes."""


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
    """Return a whole number without the decimals that some programs write, all else as it is.

    Example:
        >>> whole("1.0"), whole("1"), whole("1.5"), whole("007"), whole("1.0a")
        ('1', '1', '1.5', '007', '1.0a')
    """
    found = re.fullmatch(r"(-?\d+)\.0*", text)
    return text if found is None else found[1]


def expect_learnable(labels: Sequence[str]) -> None:
    """Raise unless there are two classes or more, each with two rows or more."""
    expect_rows(labels)
    names = class_names(labels)
    counts = Counter(names[place] for place in encode(labels, names).tolist())
    if len(counts) == 1:
        raise UserError(
            f"all {len(labels)} rows have the label {labels[0]!r}; a classifier needs two classes "
            "or more: check the target, or add rows of another class"
        )
    alone = [name for name in names if counts[name] == 1]
    numbers = all(finite_number(name) is not None for name in names)
    continuous = numbers and (len(alone) > len(names) / 2 or is_quantity(names))
    quantity = "; is the target a quantity rather than a class? Then use --task regression"
    hint = quantity if continuous else ""
    if len(alone) == 1:
        raise UserError(
            f"class {alone[0]!r} has one row only, so it cannot be both learned and tested; add "
            f"rows of that class or remove it{hint}"
        )
    if alone:
        raise UserError(
            f"{len(alone)} of {len(counts)} classes have one row only ({listed(alone)}), so they "
            f"cannot be both learned and tested; add rows or remove these classes{hint}"
        )


def is_quantity(names: Sequence[str]) -> bool:
    """Tell whether classes are so many numbers that they are probably values of a quantity."""
    return len(names) >= MANY_NUMBERS and all(finite_number(name) is not None for name in names)


def expect_rows(labels: Sequence[object]) -> None:
    """Raise where there are none."""
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
    """Write values out, the first few of them where there are many.

    Example:
        >>> listed([3, 4]), listed("abc", shown=2)
        ('3, 4', "'a', 'b' and 1 more")
    """
    text = ", ".join(repr(value) for value in values[:shown])
    return text if len(values) <= shown else f"{text} and {len(values) - shown} more"


def finite_number(text: str | None) -> float | None:
    """Return the number that a text writes out; None where it is none, or not finite."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
