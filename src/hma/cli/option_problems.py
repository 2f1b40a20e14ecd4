"""Everything that is wrong with the values of options, at once and in plain words."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

from cyclopts import App, Argument, ArgumentCollection
from cyclopts.exceptions import (
    CycloptsError,
    MissingArgumentError,
    UnusedCliTokensError,
    ValidationError,
)
from docstring_parser import parse

from hma.errors import UserError, reason, wrong_choice
from hma.options.config import ConfigError

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


def in_words(error: CycloptsError) -> str:
    """Say in one line what a command lacks, or has too much of."""
    command = " ".join(("hma", *(error.command_chain or ())))
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        given = [token.keyword for token in error.argument.tokens if token.keyword]
        if keyword := error.keyword or next(iter(given), None):
            return f"{keyword} needs a value after it; {command} --help lists the options"
        return f"{command} needs {_described(error.argument, error.target)}; write {_usage(error)}"
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        return f"{command} has no use for {extra!r}; write {_usage(error)}"
    return f"{reason(error)} {command} --help lists what there is"


def _described(argument: Argument, function: Callable[..., Any] | None) -> str:
    """Return the name of an argument and what its help says it is, up to the first pause."""
    said = {one.arg_name: one.description for one in parse(inspect.getdoc(function) or "").params}
    own = argument.parameter.help or said.get(argument.field_info.name) or ""
    what = " ".join(own.split())
    what = re.split(r"; |\.$", what)[0]
    what = what if what[1:2].isupper() else what[:1].lower() + what[1:]
    return f"{_written(argument)}: {what}" if what else _written(argument)


def _usage(error: CycloptsError) -> str:
    """Return the command with everything that it must have."""
    assert error.app is not None
    arguments = [one for one in error.app.assemble_argument_collection() if one.required]
    return " ".join(("hma", *(error.command_chain or ()), *map(_written, arguments)))


def _written(argument: Argument) -> str:
    """Return how an argument is written."""
    name = argument.name.lstrip("-").upper()
    return name if argument.field_info.is_positional else f"{argument.name} {name}"


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
