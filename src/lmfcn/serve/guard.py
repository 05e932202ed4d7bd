"""What stands before every request and goes with every response."""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""What a browser on this machine calls it."""

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


class Guard:
    """Refuses requests that other web sites make a browser send, and adds the headers of `HEADERS`.

    Parameters
    ----------
    app : ASGI application
    hosts : collection of str or None
        Names under which the server may be addressed; a page of another name that points to this machine (DNS
        rebinding) is refused. None allows any.
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

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        host = _without_port(headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            return _refused(400, f"This server does not answer under the name {host[:80]!r}.")
        follows_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") == "cross-site" and not follows_link:
            return _refused(403, "Requests from pages of other sites are not answered.")
        return None


def _without_port(host: str) -> str:
    """Return the name in a Host header.

    Examples
    --------
    >>> _without_port("LocalHost:8000"), _without_port("[::1]:8000")
    ('localhost', '[::1]')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _refused(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"detail": reason, "files": []}, status)
