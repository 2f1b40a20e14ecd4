"""Configurations that check themselves, once, where they are written down."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from hma.errors import wrong_choice

SlotInit = Literal["normal", "zeros", "samples", "class_means", "kmeans", "distilled"]
"""How slots start; ``hma.memory.slots`` has a function for each."""


class ConfigError(ValueError):
    """A configuration that cannot run. Lists every problem, not only the first."""


class Rule(NamedTuple):
    """What a number must be, in words and as a test."""

    says: str
    holds: Callable[[float], bool]


def at_least(least: int, otherwise: str = "") -> Rule:
    """Return the rule of a number that has a lower bound; ``otherwise`` names a remedy."""
    return Rule(f"at least {least}{otherwise}", lambda value: value >= least)


SHARE = Rule("at least 0 and below 1", lambda value: 0 <= value < 1)
WEIGHT = Rule("finite and at least 0", lambda value: 0 <= value < math.inf)
POSITIVE = Rule("finite and above 0", lambda value: 0 < value < math.inf)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Fields that are checked together when they are set.

    A switch, and a choice among names, is checked by its type; a number needs its rule in
    ``numbers``. A subclass says in :meth:`conflicts` which fields do not go together.
    """

    numbers: ClassVar[dict[str, Rule]] = {}

    def __post_init__(self) -> None:
        kinds = {field.name: field.type for field in fields(self)}
        problems = [*self._wrong_types(kinds), *self._wrong_values(kinds)]
        problems = problems or self.conflicts()
        if problems:
            self._refuse(problems)

    def conflicts(self) -> list[str]:
        """Return what does not go together, each in one line."""
        return []

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build a configuration from plain values; an unknown name is an error, not ignored."""
        known = tuple(field.name for field in fields(cls))
        unknown = [wrong_choice("field", name, known) for name in values if name not in known]
        if unknown:
            cls._refuse(unknown)
        return cls(**values)

    @classmethod
    def _refuse(cls, problems: list[str]) -> None:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise ConfigError(f"{cls.__name__} cannot run:\n{lines}")

    def _wrong_types(self, kinds: dict[str, Any]) -> Iterator[str]:
        for name in self.numbers:
            value, types = getattr(self, name), get_args(kinds[name]) or (kinds[name],)
            noun = "a whole number" if int in types else "a number"
            none = " or None" if NoneType in types else ""
            if not (_is_number(value, whole=int in types) or (none and value is None)):
                yield f"{name} must be {noun}{none}, got {value!r}"
        for name, kind in kinds.items():
            value = getattr(self, name)
            if kind is bool and not isinstance(value, bool):
                yield f"{name} must be True or False, got {value!r}"

    def _wrong_values(self, kinds: dict[str, Any]) -> Iterator[str]:
        for name, rule in self.numbers.items():
            value = getattr(self, name)
            if _is_number(value) and not rule.holds(value):
                yield f"{name} must be {rule.says}, got {value}"
        for name, kind in kinds.items():
            if get_origin(kind) is Literal and getattr(self, name) not in get_args(kind):
                yield wrong_choice(name, getattr(self, name), get_args(kind))


def _is_number(value: object, whole: bool = False) -> bool:
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool)
