"""What a label is: how it is checked, stored, embedded, learned from and predicted.

A target knows all of that about one kind of label, and nothing about models. To the memories a
label is a mix of rows of the label table: a class is one row, a soft label several, a number a
point on the line through two. The last row of the table, MASK, stands for "unknown".
"""

from collections.abc import Mapping
from typing import Any, cast

from hma.errors import UserError
from hma.targets.classes import Classes, SoftClasses
from hma.targets.number import Number
from hma.targets.target import UNKNOWN, Target
from hma.targets.yes_no import YesNo

__all__ = [
    "KINDS",
    "UNKNOWN",
    "Classes",
    "Number",
    "SoftClasses",
    "Target",
    "YesNo",
    "one_target",
    "target_from_json",
]

KINDS: tuple[type[Target], ...] = (Classes, SoftClasses, YesNo, Number)
"""Targets that a saved model can name; one of your own is given to ``hma.load``."""


def target_from_json(values: Mapping[str, Any]) -> Target:
    """Return the target that :meth:`Target.to_json` described.

    Example:
        >>> target_from_json(Number(3.0, 2.0).to_json())
        Number(centre=3.0, scale=2.0)
    """
    fields = {name: value for name, value in values.items() if name != "kind"}
    for kind in KINDS:
        if kind.kind == values.get("kind"):
            try:
                return kind(**fields)
            except TypeError as error:
                raise UserError(f"the target is damaged: {error}") from error
    known = ", ".join(repr(kind.kind) for kind in KINDS)
    raise UserError(f"the target must be one of {known}, got {values.get('kind')!r}")


def one_target(num_classes: int | None, target: Target | None) -> Target:
    """Return what a label is: class ids, or the target given instead of their number."""
    if (num_classes is None) == (target is None):
        raise TypeError(
            "one of num_classes and target must be given, got "
            + ("neither" if target is None else f"{num_classes!r} and {target!r}")
        )
    return target or Classes(cast("int", num_classes))
