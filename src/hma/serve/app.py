"""The endpoints: each reads a request, lets the service answer in a thread, and replies."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from hma.errors import UserError
from hma.serve.guard import Guard
from hma.serve.openapi import SUMMARIES, description
from hma.serve.page import page
from hma.serve.replies import answered, failed, refused
from hma.serve.requests import FIELDS, QUERIES, parse_body, query_of, read_body
from hma.serve.service import Service
from hma.serve.workers import Workers

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
