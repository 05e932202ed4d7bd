"""Running the application on a socket."""

import logging
import os
import socket
import webbrowser
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address

import torch
import uvicorn
from fastapi import FastAPI

from lmfcn.serve.limits import Limits

_CLOSING_SECONDS = 5


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"Cannot listen on {host}, port {port}: {reason}; choose another --host or --port.") from error


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server there.

    Examples
    --------
    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def address_of(listening: socket.socket) -> str:
    """Return what to type into a browser on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def share_cores(limits: Limits) -> Limits:
    """Return limits with as many workers as there are cores, at most four, and divide the cores among them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(4, cores)
    torch.set_num_threads(max(1, cores // workers))
    return replace(limits, workers=workers)


def run(app: FastAPI, listening: socket.socket, *, open_at: str | None = None) -> None:
    """Answer requests until the user stops it; opens `open_at` in a browser, if there is one."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )
    logging.getLogger("tifffile").disabled = True  # what is wrong with an upload is told to whoever sent it
    if open_at is not None:
        webbrowser.open(open_at)  # the socket listens already, so nothing comes too early
    with suppress(KeyboardInterrupt):  # the way to end it
        uvicorn.Server(config).run(sockets=[listening])
