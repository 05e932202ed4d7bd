"""Guard requests and responses: which hosts and pages may ask, and what browsers may do with the response."""

from collections.abc import Collection
from itertools import chain

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Host names of this machine for its own browser."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

LARGEST_HEAD = 16_384
"""Bytes of address and headers."""
MOST_HEADERS = 100


class Guard:
    """Middleware that refuses requests from pages of other origins and adds security headers.

    Parameters
    ----------
    app : ASGI application
    hosts : collection of str or None
        Accepted host names; others, which may be an attack by DNS rebinding, are refused. None accepts any.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = _refuse_flood(scope) or self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        host = _without_port(headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            return _refused(
                400, f"This server does not accept the host name {host[:80]!r}; allow it with --allow-host."
            )
        follows_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if self._is_foreign(headers) and not follows_link:
            return _refused(403, "Requests from pages of other sites are refused.")
        return None

    def _is_foreign(self, headers: Headers) -> bool:
        """Return whether a browser sends this for a page of another origin; programs send neither header."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None:
            return site in ("cross-site", "same-site")
        # Browsers leave out Sec-Fetch-Site on plain HTTP, but for this machine, and old ones do everywhere.
        return origin is not None and not self._is_own(origin, headers.get("host", ""))

    def _is_own(self, origin: str, host: str) -> bool:
        """Return whether an origin is that of the server, or has a name from --allow-host, as behind a proxy."""
        place = origin.lower().partition("://")[2]
        return place == host.lower() or _without_port(place) in (self._hosts or set()) - LOOPBACK


def _refuse_flood(scope: Scope) -> JSONResponse | None:
    """Refuse a head that is too large, which may have come before the connection could see it."""
    size = len(scope["path"]) + len(scope["query_string"]) + sum(map(len, chain(*scope["headers"])))
    if size > LARGEST_HEAD or len(scope["headers"]) > MOST_HEADERS:
        return _refused(431, "The head of the request is too large.")
    return None


def _without_port(host: str) -> str:
    """Return the name in a Host header in lower case, without the port.

    Examples
    --------
    >>> _without_port("LocalHost:8000"), _without_port("[::1]:8000")
    ('localhost', '[::1]')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _refused(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"detail": reason, "files": []}, status)
