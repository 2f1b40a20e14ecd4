"""What is sent back: JSON, and for what cannot be done one line."""

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hma.io.files import FileError
from hma.io.json_files import finite_or_none
from hma.io.printable import on_one_line
from hma.runs.memory_versions import BusyError
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
SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Of every reply: a browser neither guesses what it is nor keeps it."""
MOST_SAID = 2000
"""Characters of what is wrong."""


def answered(values: Any, status: int = 200) -> Response:
    """Return JSON values; what no text can hold is escaped."""
    data = json.dumps(finite_or_none(values), allow_nan=False)
    return Response(data, status, headers=SAFE_HEADERS, media_type="application/json")


def refusal(status: int, line: str) -> Response:
    """Return one line that says what is wrong."""
    line = line if len(line) <= MOST_SAID else line[:MOST_SAID] + "..."
    return answered({"error": on_one_line(line)}, status)


async def refused(request: Request, error: Exception) -> Response:
    """Return what is wrong with a request that cannot be answered, or with files of the run."""
    if isinstance(error, HTTPException):
        line, path = error.detail, request.scope["path"][:80]
        if error.status_code == 404:
            line = f"there is nothing at {path}; see /openapi.json"
        elif error.status_code == 405:
            line = f"{path} does not take {request.method[:80]}; see /openapi.json"
        found = refusal(error.status_code, line)
        found.headers.update(error.headers or {})
        return found
    line = str(error)
    for option, name in FIELDS_OF_OPTIONS.items():
        line = line.replace(option, name)
    statuses = {BusyError: 503, ChangedError: 409, FileError: 500}
    return refusal(next((n for kind, n in statuses.items() if isinstance(error, kind)), 400), line)


async def failed(request: Request, error: Exception) -> Response:
    """Return that the server failed, by no fault of the request; the traceback is logged."""
    return refusal(500, f"the server failed at {request.scope['path'][:80]}; its terminal says why")
