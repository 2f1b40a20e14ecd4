"""Everything that is wrong with the values of options, at once and in plain words."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

from cyclopts import App, Argument, ArgumentCollection
from cyclopts.exceptions import CycloptsError, ValidationError

from hma.config import ConfigError
from hma.errors import UserError, wrong_choice

KINDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "yes or no"}


def expect_usable(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise one error that lists every option whose value cannot be used.

    Cyclopts calls this with what was given, before it makes values of it and stops at the first
    problem.
    """
    given: dict[str, Any] = {}
    problems = []
    for argument in arguments:
        if not argument.tokens or argument.children:
            continue
        try:
            value = given[argument.name] = argument.convert_and_validate()
        except CycloptsError as error:
            problems.append(_plain(argument, error))
        else:
            if type(value) is int and float(argument.tokens[-1].value) != value:  # it was rounded
                problems.append(_plain(argument))
    for argument in arguments:
        problems += _of_options(argument, given)
    if len(problems) == 1:
        raise UserError(problems[0])
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise UserError(f"{len(problems)} options cannot be used:\n{lines}")


def at_least(least: int) -> Callable[[Any, int | None], None]:
    """Return a validator of whole numbers for :class:`cyclopts.Parameter`."""

    def check(kind: Any, value: int | None) -> None:
        if value is not None and value < least:
            raise ValueError(f"must be at least {least}, got {value}")

    return check


def _plain(argument: Argument, error: CycloptsError | None = None) -> str:
    """Say what is wrong with the value of an option."""
    if isinstance(error, ValidationError):
        return f"{argument.name} {error.exception_message}"
    value = argument.tokens[-1].value
    for kind in (argument.hint, *get_args(argument.hint)):
        if get_origin(kind) is Literal:
            return wrong_choice(argument.name, value, get_args(kind))
        if kind in KINDS:
            return f"{argument.name} must be {KINDS[kind]}, got {value!r}"
    return str(error)


def _of_options(argument: Argument, given: dict[str, Any]) -> Iterator[str]:
    """Yield what a group of options finds wrong with its values, under the options' names."""
    names = {child.keys[-1]: child.name for child in argument.children if child.keys}
    values = {field: given[name] for field, name in names.items() if name in given}
    if not values:
        return
    try:
        argument.hint(**values)
    except (ConfigError, UserError) as error:
        said = str(error)
        for line in said.split("\n  - ")[1:] or [said]:
            yield _renamed(line.replace(" or None", ""), names)


def _renamed(line: str, names: dict[str, str]) -> str:
    """Return a line with options in place of fields: the first word, and others that are no word.

    Example:
        >>> _renamed("steps must be 1 beside top_k", {"steps": "--steps", "top_k": "--top-k"})
        '--steps must be 1 beside --top-k'
    """
    first, rest = re.match(r"(\w*)(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    rest = re.sub(r"\b\w+_\w+\b", lambda word: names.get(word[0], word[0]), rest)
    return names.get(first, first) + rest
