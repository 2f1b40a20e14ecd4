"""The endpoints: who may ask, what is read of a request, what a thread answers, what is replied."""

import hmac
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from secrets import token_urlsafe
from time import monotonic
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hma.errors import UserError, on_one_line
from hma.extras import needed
from hma.io.files import FileError
from hma.io.json_files import finite_or_none
from hma.report.html import template
from hma.runs.memory_versions import BusyError
from hma.serve.requests import (
    FIELDS,
    OPEN,
    QUERIES,
    SUMMARIES,
    description,
    parse_body,
    query_of,
    read_body,
)
from hma.serve.service import ChangedError, Service, Workers

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


HOST = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]*:[0-9a-f:.]*)\]|(?P<name>[0-9a-z.-]+))(?::[0-9]{1,5})?",
    re.ASCII | re.IGNORECASE,
)


def is_loopback(host: str) -> bool:
    """Tell whether a host can be reached from this machine alone.

    Example:
        >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "a.org")]
        [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def expect_guarded(host: str, token: str | None) -> None:
    """Raise where others could ask without a token, or the token cannot stand in a request."""
    if token is None:
        if not is_loopback(host):
            raise UserError(
                f"--host {host} can be reached from other machines, which needs a token: set "
                "HMA_TOKEN or give --token, or leave --host out"
            )
    elif not (token and token.isascii() and token.isprintable() and " " not in token):
        raise UserError("the token must be printable ASCII without spaces; give another")


class Guard:
    """Let requests through that carry the token; without a token, those to this machine's name.

    A page of another site cannot make a browser ask under that name, nor send a token.

    Args:
        app: What answers.
        token: What ``Authorization: Bearer`` must carry; None for none.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request, or hand it on."""
        if scope["type"] == "http" and (refused := self._refused(Request(scope))) is not None:
            await refused(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        if self.token is None:
            given = ", ".join(request.headers.getlist("host"))
            if is_loopback(host_name(given)):
                return None
            return refusal(403, f"this server answers to localhost alone, got {given[:80]!r}")
        if request.scope["path"] in OPEN:
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("latin-1"), self.token.encode()
        ):
            return None
        said = "the token is wrong" if given else "a token is missing"
        refused = refusal(401, f"{said}; send the header Authorization: Bearer TOKEN")
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused


def host_name(header: str) -> str:
    """Return the host of a ``Host`` header without its port; "" where it is malformed.

    Example:
        >>> host_name("127.0.0.1:8000"), host_name("[::1]:8000"), host_name("Localhost")
        ('127.0.0.1', '::1', 'localhost')
        >>> host_name("[::1"), host_name("localhost:port")
        ('', '')
    """
    found = HOST.fullmatch(header)
    return "" if found is None else (found["v6"] or found["name"]).lower()


POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def page(request: Request) -> Response:
    """Return the page, which loads nothing from elsewhere."""
    nonce = token_urlsafe(16)
    jinja = needed("jinja2", "the page")
    ours = jinja.Environment(
        loader=jinja.PackageLoader("hma.serve", "templates"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
    )
    style = template("templates/style.css").render()
    made = ours.get_template("page.html.j2").render(nonce=nonce, shared_style=style)
    headers = {
        "Content-Security-Policy": POLICY.format(nonce),
        "Referrer-Policy": "no-referrer",
        **SAFE_HEADERS,
    }
    return HTMLResponse(made, headers=headers)


WRITE_WAIT = 3.0
"""Seconds that a write waits for other writers."""
WRITES = ("/remember", "/forget", "/restore")
Work = Callable[..., Any]


def app_of(
    service: Service, *, token: str | None = None, write_wait: float = WRITE_WAIT
) -> Starlette:
    """Return the application of a service.

    Readers share a few threads, writers have one of their own: whoever waits for a write keeps
    nobody from reading.

    Args:
        service: What answers.
        token: What every request must carry; None for none.
        write_wait: Seconds that a write waits for others, here or in another process; then it ends
            with 503 and nothing written.
    """
    readers, writer = Workers(max(2, os.cpu_count() or 1), "reader"), Workers(1, "writer")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.stop()
        readers.stop()
        writer.stop()

    def endpoint(path: str, work: Work) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            given: tuple[Any, ...] = ()
            if path in FIELDS:
                data = await read_body(request)
                given = (await readers.run(parse_body, path, data),)
            elif path in QUERIES:
                given = (query_of(request, path),)
            if path not in WRITES:
                return answered(await readers.run(work, *given))
            until = monotonic() + write_wait
            version = await writer.run(work, *given, until, within=write_wait)
            readers.start(service.now)  # opened now, not for the first who asks
            return answered(version)

        return answer

    async def described(request: Request) -> Response:
        return answered(description(token is not None))

    works: dict[str, Work] = {
        "/health": service.health,
        "/run": service.about,
        "/predict": service.predict,
        "/explain": service.explain,
        "/remember": service.remember,
        "/forget": service.forget,
        "/restore": service.restore,
        "/memory": service.memory,
        "/versions": service.versions,
    }
    routes = [
        Route(path, endpoint(path, works[path]), methods=[method.upper()])
        for method, path in SUMMARIES
    ]
    app = Starlette(
        routes=[*routes, Route("/openapi.json", described), Route("/", page)],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={
            HTTPException: refused,
            UserError: refused,
            ClientDisconnect: refused,
            Exception: failed,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app
