"""Who may ask: this machine alone, or whoever has the token."""

import hmac
import re
from ipaddress import ip_address

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hma.errors import UserError
from hma.serve.replies import refusal

HOST = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]*:[0-9a-f:.]*)\]|(?P<name>[0-9a-z.-]+))(?::[0-9]{1,5})?",
    re.ASCII | re.IGNORECASE,
)
OPEN = ("/", "/health")
"""Paths that need no token: they say nothing of the run."""


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
