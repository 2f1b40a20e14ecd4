"""The server: a socket of this machine, uvicorn behind it, until it is told to stop."""

import math
import socket
from collections.abc import Callable

import uvicorn

from hma.errors import UserError
from hma.runs import Run
from hma.serve.app import app_of
from hma.serve.guard import expect_guarded
from hma.serve.protocol import TimedProtocol
from hma.serve.service import Service
from hma.training.threads import one_thread

LARGEST_PORT = 2**16 - 1
STOPPING = 4
"""Seconds that requests have to end in when the server is stopped."""


class Server(uvicorn.Server):
    """uvicorn, with writes that end when it is told to stop.

    Args:
        service: What answers.
        token: What requests must carry.
        write_wait: See :func:`hma.serve.app.app_of`.
    """

    def __init__(self, service: Service, token: str | None, write_wait: float) -> None:
        self.service = service
        config = uvicorn.Config(
            app_of(service, token=token, write_wait=write_wait),
            http=TimedProtocol,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOPPING,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse writes that are not being committed, wait for what is, and close."""
        self.service.stop()
        await super().shutdown(sockets)


def serve(
    run: Run,
    *,
    host: str,
    port: int,
    token: str | None,
    coverage: float | None,
    write_wait: float,
    say: Callable[[str], None],
) -> None:
    """Answer requests until a signal comes.

    Args:
        run: A finished run.
        host: Name or address to listen at.
        port: Where; 0 takes one that is free.
        token: What requests must carry; needed where other machines can ask.
        coverage: What answers promise, see :class:`hma.serve.service.Service`.
        write_wait: Seconds that a write waits for others.
        say: Called with a line for each thing that a person should know.
    """
    expect_guarded(host, token)
    if not 0 <= write_wait < math.inf:
        raise UserError(f"--write-wait must be a number of seconds from 0 on, got {write_wait:g}")
    with listening(host, port) as own, one_thread():
        server = Server(Service(run, coverage), token, write_wait)
        shown = f"[{host}]" if ":" in host else host
        say(f"serving {run.folder} at http://{shown}:{own.getsockname()[1]}; Ctrl-C stops it")
        try:
            server.run(sockets=[own])
        except KeyboardInterrupt:  # which uvicorn hands on once it has stopped
            say("stopped")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say why there can be none."""
    if not 0 <= port <= LARGEST_PORT:
        raise UserError(f"--port must be from 0 to {LARGEST_PORT}, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UserError(
            f"port {port} of {host} cannot be listened at: {error.strerror or error}; give another "
            "--port or --host"
        ) from error
