"""Our JSON files: written whole, and read only if they are what is expected.

The shape of a file is declared in plain Python: a type (``int``, ``str``, ``Any``, ``int | None``,
``list[float]``, ``dict[str, int]``, ``Literal["a", "b"]``) or a dict of field to shape. A field
whose value may be absent is a :class:`Default`.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hma.io.files import FileError, atomic_write, expect_regular

MOST_BYTES = 256 * 2**20
MOST_DEPTH = 100
Built = TypeVar("Built")
SEAL = "sha256 of the rest"
RESTORE = "restore it from a copy"
PLAIN = (int, float, str, NoneType)
NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a number",
         bool: "true or false", NoneType: "null"}  # fmt: skip


@dataclass(frozen=True)
class Default:
    """A field that may be absent.

    Args:
        shape: What it holds where it is there.
        value: What it counts as where it is not.
    """

    shape: Any
    value: Any = None


def read_json(
    path: Path,
    shape: Any,
    *,
    sha256: str | None = None,
    sealed: bool = False,
    most_bytes: int = MOST_BYTES,
    remedy: str = RESTORE,
) -> Any:
    """Read a JSON file and return its values, or raise :class:`hma.io.files.FileError`.

    Args:
        path: A regular file; a pipe or a device is not touched.
        shape: What it must hold, see :func:`validate`.
        sha256: Its hash, where that is recorded elsewhere.
        sealed: The file was written sealed: without its own hash it is damaged. A hash that a file
            carries is always compared.
        most_bytes: A larger file is not read.
        remedy: What the reader of an error should do.
    """
    expect_regular(path, most_bytes)
    try:
        data = path.read_bytes()
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError("its content does not match its recorded hash")
        return validate(_remove_seal(parse_json(data), sealed), shape)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error
    except ValueError as error:
        raise FileError(f"{path} is damaged: {error}; {remedy}") from error


def write_json(path: Path, values: Any, *, sealed: bool = False, indent: int | None = 2) -> str:
    """Write JSON values, whole or not at all, and return the hash of the file.

    Args:
        path: Where to.
        values: What.
        sealed: Add a hash of the values, which must be an object, to the file itself.
        indent: Spaces for each level; None for one line.
    """
    if sealed:
        values = {**values, SEAL: _hash_of(values)}
    data = (json.dumps(values, indent=indent, allow_nan=False) + "\n").encode()
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _remove_seal(values: Any, sealed: bool) -> Any:
    """Return the values of a sealed file as they were before, if they still are."""
    if sealed and SEAL not in validate(values, dict):
        raise ValueError(f"it lacks its own hash, the field {SEAL!r}")
    if not isinstance(values, dict) or SEAL not in values:
        return values
    inner = {name: value for name, value in values.items() if name != SEAL}
    if values[SEAL] != _hash_of(inner):
        raise ValueError("its content does not match its own hash")
    return inner


def _hash_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def parse_json(data: bytes) -> Any:
    """Return the values of JSON text; a ``ValueError`` says in one line what is wrong with it.

    Text that is not UTF-8, half of a surrogate pair, numbers beyond 64 bits and more than
    ``MOST_DEPTH`` lists within lists are refused, since what comes after cannot deal with them.
    """
    try:
        values = json.loads(data.decode("utf-8"))
        _expect_modest(values)
        if b"\\u" in data:
            json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is no text") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep") from error
    return values


def validate(values: Any, shape: Any, *, where: str = "it") -> Any:
    """Return ``values`` if they have ``shape``, absent fields filled in; else a ``ValueError``.

    A whole number is a ``float`` too, true and false are no numbers.

    Example:
        >>> validate({"seed": 3}, {"seed": int, "name": Default(str, "run")})
        {'seed': 3, 'name': 'run'}
        >>> validate({"seed": "3"}, {"seed": int})
        Traceback (most recent call last):
        ValueError: seed must be a whole number, got '3'
    """
    if isinstance(shape, Default):
        shape = shape.shape
    if isinstance(shape, Mapping):
        return _validate_fields(values, shape, where)
    if isinstance(shape, list):
        shape = list[shape[0]]
    origin, inner = get_origin(shape), get_args(shape)
    if origin in (Union, UnionType):
        for one in inner:
            with suppress(ValueError):
                return validate(values, one, where=where)
    elif origin is list and isinstance(values, list):
        kinds = get_args(inner[0]) if get_origin(inner[0]) in (Union, UnionType) else inner
        if all(kind in PLAIN for kind in kinds) and all(type(item) in kinds for item in values):
            return values  # the quick way for a million whole numbers
        return [
            validate(item, inner[0], where=f"{where}[{place}]") for place, item in enumerate(values)
        ]
    elif origin is dict and isinstance(values, dict):
        return {
            name: validate(item, inner[1], where=_inside(where, name))
            for name, item in values.items()
        }
    elif _is_a(values, shape):
        return values
    raise ValueError(f"{where} must be {_describe_shape(shape)}, got {_shorten(values)}")


def dataclass_from_json(kind: type[Built], values: Any, *, where: str = "it") -> Built:
    """Build a dataclass from what ``dataclasses.asdict`` made of one, its annotations the shape.

    A field that is absent takes its default; a ``ValueError`` tells of one that is not known.
    """
    hints = get_type_hints(kind)
    own = {field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]
    given = values.keys() & own if isinstance(values, dict) else set()
    whole = validate(values, {name: _in_json(hints[name]) for name in given}, where=where)
    if strange := sorted(whole.keys() - own):
        raise ValueError(f"{where} has a field that is not known: {_shorten(strange[0])}")
    try:
        return kind(**{name: _from_json(hints[name], value) for name, value in whole.items()})
    except TypeError as error:
        raise ValueError(f"{where} is no {kind.__name__}: {error}") from error


def _in_json(hint: Any) -> Any:
    """Return the shape that a value of this annotation has in a file."""
    if is_dataclass(hint):
        return dict
    return [_in_json(get_args(hint)[0])] if get_origin(hint) is tuple else hint


def _from_json(hint: Any, value: Any) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return dataclass_from_json(hint, value, where=hint.__name__)
    if get_origin(hint) is tuple:
        return tuple(_from_json(get_args(hint)[0], one) for one in value)
    return value


def finite_or_none(value: Any) -> Any:
    """Return JSON values with every number that is not finite replaced by None, as JSON wants."""
    if isinstance(value, Mapping):
        return {str(name): finite_or_none(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def none_to_nan(value: Any) -> Any:
    """Undo :func:`finite_or_none` for values that are all numbers."""
    if isinstance(value, dict):
        return {name: none_to_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [none_to_nan(item) for item in value]
    return math.nan if value is None else value


def _validate_fields(values: Any, shape: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be an object, got {_shorten(values)}")
    needed = {name for name, field in shape.items() if not isinstance(field, Default)}
    if missing := sorted(needed - values.keys()):
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    whole = dict(values)
    for name, field in shape.items():
        if name in values:
            whole[name] = validate(values[name], field, where=_inside(where, name))
        else:
            whole[name] = deepcopy(field.value)
    return whole


def _is_a(value: Any, shape: Any) -> bool:
    if shape is Any:
        return True
    if get_origin(shape) is Literal:
        return any(type(value) is type(one) and value == one for one in get_args(shape))
    if shape is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is shape


def _expect_modest(values: Any) -> None:
    """Raise where numbers or nesting are beyond what any file of ours has; without recursion."""
    level, depth = [values], 0
    while level:
        depth += 1
        if depth > MOST_DEPTH + 1:
            raise RecursionError
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, int) and not -(2**63) <= value < 2**64:
                raise ValueError("it holds a whole number of more than 64 bits")
        level = below


def _inside(where: str, name: str) -> str:
    return name if where == "it" else f"{where}.{name}"


def _describe_shape(shape: Any) -> str:
    origin, inner = get_origin(shape), get_args(shape)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, inner))
    if origin in (Union, UnionType):
        return " or ".join(map(_describe_shape, inner))
    return NAMES.get(origin or shape, "something else")


def _shorten(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
