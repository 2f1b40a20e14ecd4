"""The description of the endpoints, made from the shapes that requests are checked against."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import hma
from hma.io.json_files import Default
from hma.serve.guard import OPEN
from hma.serve.requests import FIELDS, JSON, MOST_BYTES, MOST_ROWS, QUERIES

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
