"""Run the web application on a socket until a signal stops it."""

import asyncio
import signal
import socket
import time
import webbrowser
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI

from lmfcn.serve.app import Service
from lmfcn.serve.connections import Connection
from lmfcn.serve.guard import LARGEST_HEAD
from lmfcn.serve.logs import configure_logs
from lmfcn.serve.uploads import Limits

SIGHUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # not on Windows
_DRAINING_SECONDS = 0.3
"""How long new requests are refused before the server ends, so that proxies notice."""
_LONGEST_DRAINING_SECONDS = 30
_CLOSING_SECONDS = 5


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


def run(
    app: FastAPI,
    listening: socket.socket,
    *,
    open_at: str | None = None,
    log_json: bool = False,
    announce: Callable[[], None] = lambda: None,
) -> None:
    """Serve until the user or the system stops it.

    Parameters
    ----------
    app : FastAPI
    listening : socket
    open_at : str, optional
        Opened in a browser.
    log_json : bool
        Whether to log every request as JSON.
    announce : callable
        Called when the server understands requests and signals.
    """
    configure_logs(as_json=log_json)
    if open_at is not None:
        webbrowser.open(open_at)  # the socket listens already, so requests wait
    Server(app, announce).run(sockets=[listening])


def find_service(app: FastAPI) -> Service | None:
    """Return what the requests of an application share; None for `lmfcn label`."""
    return getattr(app.state, "service", None)


def connections_for(app: FastAPI, **limits: Any) -> Any:
    """Return the class of the connections of an application, with limits of their own, for uvicorn."""
    service = find_service(app)
    return partial(Connection, refused=None if service is None else service.metrics.refusals.add, **limits)


class Server(uvicorn.Server):
    """Stops gracefully, and loads models again.

    SIGTERM and SIGINT: predictions in progress are finished, new ones are refused, then the server ends; a second
    signal ends it at once. SIGHUP: models are read from their files.
    """

    def __init__(self, app: FastAPI, announce: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connections_for(app),
                ws="none",
                lifespan="off",
                h11_max_incomplete_event_size=LARGEST_HEAD,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_CLOSING_SECONDS,
            )
        )
        self._service = find_service(app)
        self._announce = announce
        self._stop_at: float | None = None
        self._reloads: set[asyncio.Task[None]] = set()
        self._reloading = asyncio.Lock()
        self._ends_with_terminal = ends_with_terminal()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, to SIGHUP too."""
        await super().startup(sockets)
        if self._service is not None and SIGHUP is not None:
            asyncio.get_running_loop().add_signal_handler(SIGHUP, self._hang_up, self._service)
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Refuse new predictions and end when there are none in progress; at the second signal, end at once."""
        if self._stop_at is not None:
            self.should_exit = self.force_exit = True
            return
        self._stop_at = time.monotonic()
        if self._service is None:
            self.should_exit = True
        else:
            self._service.admission.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end."""
        if self._service is not None and self._stop_at is not None:
            waited = time.monotonic() - self._stop_at
            idle = self._service.admission.in_progress == 0 and waited > _DRAINING_SECONDS
            self.should_exit = self.should_exit or idle or waited > _LONGEST_DRAINING_SECONDS
        return await super().on_tick(counter)

    def _hang_up(self, service: Service) -> None:
        if self._ends_with_terminal and not has_terminal():
            self.handle_exit(signal.SIGTERM, None)  # its window was closed
            return
        task = asyncio.create_task(self._reload(service))
        self._reloads.add(task)  # the event loop alone does not keep it
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, service: Service) -> None:
        """Load the models in a thread, while requests go on."""
        async with self._reloading:
            for name, result in await asyncio.to_thread(service.models.reload):
                service.metrics.loads.add(name, result)


def ends_with_terminal() -> bool:
    """Return whether the process is to end when its terminal is closed; not so with nohup, which ignores SIGHUP."""
    return SIGHUP is not None and has_terminal() and signal.getsignal(SIGHUP) != signal.SIG_IGN


def has_terminal() -> bool:
    """Return whether the process can be stopped from a terminal."""
    try:
        with open("/dev/tty", "rb"):
            return True
    except OSError:
        return False
