"""HTTP connections that give clients a limited time, and answer malformed requests as JSON."""

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lmfcn.serve.guard import HEADERS

_CLOSING_SECONDS = 2.0
_MEANINGS = {
    400: "The request is malformed.",
    408: "The head of the request did not arrive in time.",
    431: "The head of the request is too large.",
    501: "The transfer encoding of the request is not supported.",
    503: "The server has too many connections.",
}


class Connection(H11Protocol):
    """One connection; what the application does not see is refused and limited here.

    Parameters
    ----------
    refused : callable, optional
        Told the status of a refusal.
    head_seconds : float
        Time in which the head of a request must arrive, on a connection that is open.
    stalled_seconds : float
        Time in which a client must read a part of its response, or send what is left of a request that was refused.
    most : int
        Connections at the same time.
    """

    def __init__(
        self,
        *args: Any,
        refused: Callable[[int], None] | None,
        head_seconds: float = 10.0,
        stalled_seconds: float = 60.0,
        most: int = 500,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._refused = refused
        self._head_seconds = head_seconds
        self._stalled_seconds = stalled_seconds
        self._most = most
        self._deadline: asyncio.TimerHandle | None = None
        self._ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, unless there are too many connections."""
        super().connection_made(transport)
        # asyncio leaves this out for sockets of `socket.create_server`, and every response would take 40 ms longer.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self._most:
            self._refuse(503)
        else:
            self._limit(self._head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up."""
        self._unlimit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data; once there is a request, the application decides how long it may take."""
        if self._ended:
            return
        super().data_received(data)
        if self._in_progress and not self._unread():
            self._unlimit()

    def on_response_complete(self) -> None:
        """Wait for the next request; the rest of one that was refused early is read and dropped."""
        super().on_response_complete()
        if not self._in_progress:
            dropping = self.conn.their_state is h11.SEND_BODY
            self._limit(self._stalled_seconds if dropping or self._unread() else self._head_seconds)

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as the response comes."""
        super().pause_writing()
        self._limit(self._stalled_seconds)

    def resume_writing(self) -> None:
        """Note that the client has read nearly all."""
        super().resume_writing()
        if self._in_progress:
            self._unlimit()
        else:
            self._limit(self._head_seconds)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002, ours say more
        """Refuse a request that is not HTTP, or too large."""
        # uvicorn calls this while it handles the error, but does not pass it on.
        self._refuse(getattr(sys.exception(), "error_status_hint", 400))

    @property
    def _in_progress(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _unread(self) -> int:
        """Return how many bytes of responses the client has not read."""
        return self.transport.get_write_buffer_size()

    def _limit(self, seconds: float) -> None:
        self._unlimit()
        self._deadline = self.loop.call_later(seconds, self._check, self._unread())

    def _unlimit(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _check(self, unread_before: int) -> None:
        """End a connection on which nothing moves; say why if a part of a request has come."""
        if 0 < self._unread() < unread_before:
            self._limit(self._stalled_seconds)
        elif self._unread() > 0:
            self.transport.abort()
        elif self.conn.trailing_data[0] and self.conn.our_state is h11.IDLE:
            self._refuse(408)
        else:
            self.transport.close()

    def _refuse(self, status: int) -> None:
        if self._refused is not None:
            self._refused(status)
        if self._in_progress:  # the application must not answer too
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send_refusal(status)
        self._end()

    def _send_refusal(self, status: int) -> None:
        body = json.dumps({"detail": _MEANINGS.get(status, _MEANINGS[400]), "files": []}).encode()
        headers = {
            **HEADERS,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        if status == 503:
            headers["Retry-After"] = "1"
        response = h11.Response(status_code=status, headers=list(headers.items()))
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _end(self) -> None:
        """Drop what still comes, and close soon: closed at once, a client that is sending would miss the refusal."""
        self._ended = True
        self._unlimit()
        with suppress(OSError):  # the client may be gone already
            self.transport.write_eof()
        self.loop.call_later(_CLOSING_SECONDS, self.transport.abort)
