"""Follow every request: its id, its place in the log and the metrics, HEAD, and errors that nobody expected."""

import asyncio
import json
import re
import time
import uuid
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lmfcn.serve.admission import Admission
from lmfcn.serve.logs import LOGGER, REQUESTS
from lmfcn.serve.metrics import Metrics

_HEADER = "X-Request-ID"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})
_LONGEST_PATH = 200


class Traffic:
    """Middleware around everything else.

    A proxy's request id is kept if it is a word of letters, digits, dots, dashes and underscores. HEAD gets what GET
    does, without the body.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, admission: Admission) -> None:
        self._app = app
        self._metrics = metrics
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, send, closing=self._admission.draining)
        try:
            await self._app(exchange.scope, receive, exchange.send)
        except asyncio.CancelledError:  # it takes longer than the server waits when it stops
            await exchange.fail(503, "The server has stopped before the answer was ready.")
        except Exception:
            LOGGER.exception("An error of the server.", extra={"fields": {"request_id": exchange.id}})
            await exchange.fail(500, f"An error of the server; its log has the request id {exchange.id}.")
        finally:
            self._record(exchange)

    def _record(self, exchange: "Exchange") -> None:
        """Count and log a request; one whose client is gone has the status 499, as nginx calls it."""
        status, seconds = exchange.status or 499, time.perf_counter() - exchange.start
        method = exchange.method if exchange.method in _METHODS else "other"
        self._metrics.requests.add(exchange.route, method, status)
        self._metrics.seconds.add(exchange.route, seconds)
        if status >= 400:
            self._metrics.refusals.add(status)
        REQUESTS.info("request", extra={"fields": exchange.as_fields(status, seconds)})


class Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, send: Send, *, closing: bool) -> None:
        given = Headers(scope=scope).get(_HEADER, "")
        self.id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        self.method: str = scope["method"]
        self.status: int | None = None
        self.start = time.perf_counter()
        self.scope = {**scope, "method": "GET" if self.method == "HEAD" else self.method}
        self._send = send
        self._closing = closing

    @property
    def route(self) -> str:
        """The path as the interface describes it, after the request was handled: /gallery/{image}."""
        route = self.scope.get("route")
        if route is not None:
            return str(route.path)
        return "/static" if self.scope["path"].startswith("/static/") else "other"

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[_HEADER] = self.id
            if self._closing:
                headers["Connection"] = "close"
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    async def fail(self, status: int, reason: str) -> None:
        """Send a response for what went wrong, unless another has begun."""
        if self.status is not None:
            return
        content = json.dumps({"detail": reason, "files": []}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})

    def as_fields(self, status: int, seconds: float) -> dict[str, Any]:
        """Return what the log tells: no names of files, no addresses of clients."""
        return {
            "request_id": self.id,
            "method": self.method,
            "path": self.scope["path"][:_LONGEST_PATH],
            "status": status,
            "seconds": round(seconds, 4),
            **self.scope.get("state", {}).get("logged", {}),
        }
