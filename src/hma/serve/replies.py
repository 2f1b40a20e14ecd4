"""What is sent back: JSON, and for what cannot be done one line."""

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hma.files import FileError
from hma.json_files import finite_or_none
from hma.printable import on_one_line
from hma.serve.service import ChangedError

FIELDS_OF_OPTIONS = {
    "pass --new-classes": 'send "new_classes": true',
    "pass --yes": 'send "yes": true',
    "--new-classes": '"new_classes"',
    "--yes": '"yes"',
    "--ids": '"ids"',
    "--where": '"where"',
    "--class": '"class"',
}
"""What the options that messages name are called in requests."""


def answered(values: Any, status: int = 200) -> Response:
    """Return JSON values; what no text can hold is escaped."""
    data = json.dumps(finite_or_none(values), allow_nan=False)
    return Response(data, status, media_type="application/json")


def refusal(status: int, line: str) -> Response:
    """Return one line that says what is wrong."""
    return answered({"error": on_one_line(line)}, status)


async def refused(request: Request, error: Exception) -> Response:
    """Return what is wrong with a request that cannot be answered, or with files of the run."""
    if isinstance(error, HTTPException):
        line = error.detail
        if error.status_code == 404:
            line = f"there is nothing at {request.url.path[:80]}; see /openapi.json"
        elif error.status_code == 405:
            line = f"{request.url.path} does not take {request.method}; see /openapi.json"
        found = refusal(error.status_code, line)
        found.headers.update(error.headers or {})
        return found
    line = str(error)
    for option, name in FIELDS_OF_OPTIONS.items():
        line = line.replace(option, name)
    status = 409 if isinstance(error, ChangedError) else 400
    return refusal(500 if isinstance(error, FileError) else status, line)


async def failed(request: Request, error: Exception) -> Response:
    """Return that the server failed, by no fault of the request; the traceback is logged."""
    return refusal(500, f"the server failed at {request.url.path}; its terminal says why")
