"""The server: a socket of this machine, uvicorn behind it, until it is told to stop."""

import socket
from collections.abc import Callable

import uvicorn

from hma.errors import UserError
from hma.runs import Run
from hma.serve.app import app_of
from hma.serve.guard import expect_guarded
from hma.serve.service import Service
from hma.training.threads import one_thread

MOST_AT_ONCE = 64
"""Requests and connections at a time; more are told to come again."""
LARGEST_PORT = 2**16 - 1
STOPPING = 10
"""Seconds that requests have to end in when the server is stopped."""


def serve(
    run: Run,
    *,
    host: str,
    port: int,
    token: str | None,
    coverage: float | None,
    say: Callable[[str], None],
) -> None:
    """Answer requests until a signal comes.

    Args:
        run: A finished run.
        host: Name or address to listen at.
        port: Where; 0 takes one that is free.
        token: What requests must carry; needed where other machines can ask.
        coverage: What answers promise, see :class:`hma.serve.service.Service`.
        say: Called with a line for each thing that a person should know.
    """
    expect_guarded(host, token)
    with listening(host, port) as own, one_thread():
        app = app_of(Service(run, coverage), token=token)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            limit_concurrency=MOST_AT_ONCE,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOPPING,
        )
        shown = f"[{host}]" if ":" in host else host
        say(f"serving {run.folder} at http://{shown}:{own.getsockname()[1]}; Ctrl-C stops it")
        try:
            uvicorn.Server(config).run(sockets=[own])
        except KeyboardInterrupt:  # which uvicorn hands on once it has stopped
            say("stopped")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say why there can be none."""
    if not 0 <= port <= LARGEST_PORT:
        raise UserError(f"--port must be from 0 to {LARGEST_PORT}, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2 * MOST_AT_ONCE)
    except OSError as error:
        raise UserError(
            f"port {port} of {host} cannot be listened at: {error.strerror or error}; give another "
            "--port or --host"
        ) from error
