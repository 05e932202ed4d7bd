"""Run the web application on a socket, and guard its requests and responses."""

import logging
import socket
import webbrowser
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address

import torch
import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lmfcn.serve.uploads import Limits

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
_SHUTDOWN_SECONDS = 5


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"Cannot listen on {host}, port {port}: {reason}; choose another --host or --port.") from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server on this host.

    Examples
    --------
    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def browser_address(listening: socket.socket) -> str:
    """Return the URL of the server for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def share_threads(limits: Limits, threads: int) -> Limits:
    """Return limits with one worker per thread, at most four, and divide the threads of torch among them."""
    workers = min(4, threads)
    torch.set_num_threads(max(1, threads // workers))
    return replace(limits, workers=workers)


def run(app: FastAPI, listening: socket.socket, *, open_at: str | None = None) -> None:
    """Serve until the user stops it; open the URL `open_at` in a browser, if given."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    logging.getLogger("tifffile").disabled = True  # the response tells the client what is wrong
    if open_at is not None:
        webbrowser.open(open_at)  # the socket listens already, so requests wait
    with suppress(KeyboardInterrupt):  # Ctrl-C stops the server
        uvicorn.Server(config).run(sockets=[listening])


class Guard:
    """Middleware that refuses cross-site requests and adds security headers.

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

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> JSONResponse | None:
        host = _without_port(headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            return _refused(
                400, f"This server does not accept the host name {host[:80]!r}; allow it with --allow-host."
            )
        follows_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") == "cross-site" and not follows_link:
            return _refused(403, "Requests from pages of other sites are refused.")
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
