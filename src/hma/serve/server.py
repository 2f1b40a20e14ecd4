"""The server: HTTP/1.1 that cuts off slow clients, on a socket of this machine, until it stops."""

import asyncio
import http
import math
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hma.errors import UserError
from hma.runs import Run
from hma.serve.app import app_of, expect_guarded, refusal
from hma.serve.service import Service
from hma.training.cost import using_threads


class TimedProtocol(H11Protocol):
    """A connection that has some seconds for each part of a request.

    uvicorn's ``timeout_keep_alive`` ends with the first byte of a request, and an application is
    asked once the header is there; so a sender that stops halfway is seen here alone, whether or
    not it has a token. Where connections are too many, the one that has been sending, idle or
    reading for the longest makes room; a request that is whole is always answered.
    """

    header_seconds: ClassVar = 10.0
    """From when a request may begin to the end of its header."""
    body_seconds: ClassVar = 30.0
    """From there to the end of its body; also, to read a large reply."""
    most_connections: ClassVar = 64

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._part: tuple[object, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._since = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count; make room for this connection if needed."""
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            others = [one for one in self.connections if isinstance(one, TimedProtocol)]
            first = min(others, key=lambda one: one._since)
            if first._timer is not None:
                first._refuse(503, "there are too many connections; send it again later")
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        self._stop_counting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a request."""
        super().data_received(data)
        self._count()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._count()

    def shutdown(self) -> None:
        """Close the connection, once its request is answered if that is whole."""
        if self._timer is not None and self.cycle is not None and not self.cycle.response_complete:
            self._refuse(503, "the server is stopping; send it again later")
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse(400, msg)

    def _count(self) -> None:
        """Count the seconds of the part that comes; none while a whole request is answered."""
        cycle = self.cycle
        part = (cycle,) if cycle is None else (cycle, cycle.more_body, cycle.response_complete)
        if part == self._part or self.transport.is_closing():
            return
        self._stop_counting()
        self._part = part
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            return
        sends_body = cycle is not None and not cycle.response_complete
        long = sends_body or self.transport.get_write_buffer_size() > 0
        seconds = self.body_seconds if long else self.header_seconds
        self._since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self._expire, seconds)

    def _stop_counting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._since = None, math.inf

    def _expire(self, seconds: float) -> None:
        self._refuse(408, f"the request did not arrive within {seconds:g} seconds; send it faster")

    def _refuse(self, status: int, line: str) -> None:
        """Send one line, if a request has begun and no reply has, and close the connection."""
        self._stop_counting()
        idle = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if not idle and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            reply = refusal(status, line)
            headers = [*reply.raw_headers, (b"connection", b"close")]
            reason = http.HTTPStatus(status).phrase.encode()
            for event in (
                h11.Response(status_code=status, headers=headers, reason=reason),
                h11.Data(data=bytes(reply.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.transport.get_write_buffer_size():  # a reader that does not read
            self.transport.abort()
        else:
            self.transport.close()


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
    with listening(host, port) as own, using_threads(1):
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
            f"cannot listen on port {port} of {host}: {error.strerror or error}; give another "
            "--port or --host"
        ) from error
