"""What a request may hold: fields, shapes and limits of each endpoint, and their description."""

import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from starlette.exceptions import HTTPException
from starlette.requests import Request

import hma
from hma.data.labels import listed
from hma.errors import UserError
from hma.io.json_files import Default, parse_json, validate

OPEN = ("/", "/health")
"""Paths that need no token: they say nothing of the run."""
MOST_BYTES = 16 * 2**20
"""Of the body of a request."""
MOST_VALUES = 2**20
"""Of the body of a request: cells, names, ids."""
MOST_ROWS = 256
"""Of a request: as many as ``hma predict`` answers at a time."""
MOST_SHOWN = 100
"""Voters that an explanation names."""
MOST_LISTED = 1000
"""Rows of the memory that are listed at once."""
MOST_NOTE = 1000
"""Characters of a note."""
JSON = "application/json"
TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+\\?"?', re.DOTALL)
"""The texts of a JSON document, the last perhaps without its end."""

Cell = str | float | bool | None
Shape = Mapping[str, Any]
ROWS: Shape = {
    "rows": Default(list[dict[str, Cell]] | None),
    "texts": Default(list[str] | None),
    "images": Default(list[str] | None),
    "places": Default(list[int] | None),
}
"""Rows to ask about, one of these: rows of a table, texts, files of pictures in base64, or numbers
of rows of the source that the run was trained on."""
FIELDS: Mapping[str, Shape] = {
    "/predict": ROWS,
    "/explain": {**ROWS, "top": Default(int, 8)},
    "/remember": {
        **ROWS,
        "labels": list[str | float | bool | dict[str, Cell]],
        "new_classes": Default(bool, False),
        "yes": Default(bool, False),
        "note": Default(str, ""),
    },
    "/forget": {
        "ids": Default(list[int] | None),
        "where": Default(str | None),
        "class": Default(str | None),
        "yes": Default(bool, False),
        "note": Default(str, ""),
    },
    "/restore": {"version": int, "now": Default(int | None)},
}
"""Fields of the body that each endpoint takes."""
QUERIES: Mapping[str, Shape] = {
    "/memory": {"class": Default(str | None), "first": Default(int, 0), "count": Default(int, 20)},
}
"""Fields of the address that an endpoint takes."""


async def read_body(request: Request) -> bytes:
    """Return the body of a request, or raise what becomes a 4xx with one line."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != JSON:  # which also keeps forms of other sites out
        raise HTTPException(415, f"Content-Type must be {JSON}, got {given or 'none'}")
    return await _limited(request)


def parse_body(path: str, data: bytes) -> dict[str, Any]:
    """Return the fields of a request's body, or raise what becomes a 4xx with one line.

    Args:
        path: Of the endpoint.
        data: The body.
    """
    marks = TEXTS.sub(b"", data)
    if sum(map(marks.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise UserError(
            f"the body of {path} must hold at most {MOST_VALUES} values; send several requests"
        )
    try:
        values = validate(parse_json(data), FIELDS[path], where="it")
    except ValueError as error:
        raise UserError(f"the body of {path} is not valid: {error}") from error
    return _known(path, values, FIELDS[path])


def query_of(request: Request, path: str) -> dict[str, Any]:
    """Return the fields of a request's address, likewise."""
    shape, given = QUERIES[path], dict(request.query_params)
    values: dict[str, Any] = {name: field.value for name, field in shape.items()}
    for name, text in _known(path, given, shape).items():
        whole = shape[name].shape is int
        if whole and not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise UserError(f"{name} must be a whole number of at least 0, got {text[:80]!r}")
        values[name] = int(text) if whole else text
    if not 1 <= values["count"] <= MOST_LISTED:
        raise UserError(f"count must be from 1 to {MOST_LISTED}, got {values['count']}")
    return values


async def _limited(request: Request) -> bytes:
    """Return the body; a larger one than allowed is not read to its end."""
    too_large = HTTPException(413, f"the body must be at most {MOST_BYTES} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MOST_BYTES:
        raise too_large
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BYTES:
            raise too_large
    return bytes(data)


def _known(path: str, values: dict[str, Any], shape: Shape) -> dict[str, Any]:
    if strange := [name for name in values if name not in shape]:
        raise UserError(f"{path} takes {listed(list(shape), 30)}, got {strange[0][:80]!r}")
    if len(values.get("note", "")) > MOST_NOTE:
        raise UserError(f"note must have at most {MOST_NOTE} characters, got {len(values['note'])}")
    return values


TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}
SUMMARIES = {
    ("get", "/health"): "Whether the server answers, and with which version of the memory.",
    ("get", "/run"): "What the run is: its kind of rows, columns and labels.",
    ("post", "/predict"): f"Predict up to {MOST_ROWS} rows, each by itself.",
    ("post", "/explain"): "Predict one row and name the stored rows that voted, with shares.",
    ("post", "/remember"): "Teach rows with their right labels; they vote at once.",
    ("post", "/forget"): "Take rows out of the memory: by ids, a condition, or a class.",
    ("post", "/restore"): "Let an earlier version of the memory answer again.",
    ("get", "/memory"): "List rows of the memory.",
    ("get", "/versions"): "List the versions of the memory.",
}
"""What each endpoint does."""


def description(token: bool) -> dict[str, Any]:
    """Return the description in OpenAPI 3.1.

    Args:
        token: Whether requests must carry one.
    """
    paths: dict[str, Any] = {}
    for (method, path), summary in SUMMARIES.items():
        about: dict[str, Any] = {"summary": summary, "responses": _responses(path)}
        if path in FIELDS:
            content = {JSON: {"schema": schema_of(FIELDS[path])}}
            about["requestBody"] = {"required": True, "content": content}
        if path in QUERIES:
            about["parameters"] = [
                {"name": name, "in": "query", "schema": schema_of(field)}
                for name, field in QUERIES[path].items()
            ]
        if token and path in OPEN:
            about["security"] = []
        paths[path] = {method: about}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "hma serve", "version": hma.__version__},
        "paths": paths,
    }
    if token:
        found["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        found["security"] = [{"token": []}]
    return found


def _responses(path: str) -> dict[str, Any]:
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    wrong = {"content": {JSON: {"schema": error}}}
    found = {
        "200": {"description": "The answer.", "content": {JSON: {"schema": {"type": "object"}}}},
        "4XX": {"description": "One line that says what is wrong.", **wrong},
        "503": {"description": "Too busy, or stopping; nothing was written.", **wrong},
    }
    if path in FIELDS:
        found["413"] = {"description": f"More than {MOST_BYTES} bytes.", **wrong}
    if path == "/restore":
        found["409"] = {"description": "The memory was changed meanwhile.", **wrong}
    return found


def schema_of(shape: Any) -> dict[str, Any]:
    """Return a shape of :mod:`hma.io.json_files` as JSON Schema.

    Example:
        >>> schema_of({"top": Default(int, 8), "ids": list[int]})["required"]
        ['ids']
        >>> schema_of(list[str] | None)
        {'anyOf': [{'type': 'array', 'items': {'type': 'string'}}, {'type': 'null'}]}
    """
    if isinstance(shape, Default):
        return {**schema_of(shape.shape), "default": shape.value}
    if isinstance(shape, Mapping):
        return {
            "type": "object",
            "properties": {name: schema_of(field) for name, field in shape.items()},
            "required": [n for n, field in shape.items() if not isinstance(field, Default)],
            "additionalProperties": False,
        }
    origin, inner = get_origin(shape), get_args(shape)
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(one) for one in inner]}
    if origin is list:
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    return {"type": TYPES[shape]}
