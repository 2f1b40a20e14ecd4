"""The endpoints: each reads a request, lets the service answer in a thread, and replies."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
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
from hma.serve.requests import FIELDS, QUERIES, body_of, query_of
from hma.serve.service import Service

WRITES = ("/remember", "/forget", "/restore")
Work = Callable[..., Any]


def app_of(service: Service, *, token: str | None = None) -> Starlette:
    """Return the application of a service.

    Readers share a few threads, writers have one of their own: whoever waits for a write keeps
    nobody from reading.

    Args:
        service: What answers.
        token: What every request must carry; None for none.
    """
    readers = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "reader")
    writer = ThreadPoolExecutor(1, "writer")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        readers.shutdown()
        writer.shutdown()

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
        Route(path, _endpoint(path, works[path], writer if path in WRITES else readers),
              methods=[method.upper()])
        for method, path in SUMMARIES
    ]  # fmt: skip
    return Starlette(
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


def _endpoint(path: str, work: Work, threads: Executor) -> Callable[[Request], Any]:
    """Return what answers the requests to a path."""

    async def answer(request: Request) -> Response:
        given: tuple[Any, ...] = ()
        if path in FIELDS:
            given = (await body_of(request, path),)
        elif path in QUERIES:
            given = (query_of(request, path),)
        loop = asyncio.get_running_loop()
        return answered(await loop.run_in_executor(threads, work, *given))

    return answer
