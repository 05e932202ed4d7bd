"""What is refused before the application sees it: floods, slow clients, and what is not HTTP."""

import gzip
import json
import socket
import time
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import Response

from lmfcn.serve.app import make_app
from serving import running


@pytest.fixture(scope="module")
def strict(fitted):
    """A server that is not patient."""
    with running(make_app(fitted.model), head_seconds=0.5, stalled_seconds=1.0, most=20) as address:
        yield urlsplit(address)


def connect(place) -> socket.socket:
    return socket.create_connection((place.hostname, place.port), timeout=30)


def response_to(place, request: bytes) -> tuple[int, dict]:
    """Return the status and the JSON of the response to some bytes, after which the connection is closed."""
    with connect(place) as connection:
        connection.sendall(request)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


LARGE = 48 << 20
HEAD = b"GET /model HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (
            HEAD + b"Connection: close\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
            431,
            "The head of the request is too large.",
        ),
        (HEAD + b"X: y\r\n" * 20_000, 431, "The head of the request is too large."),
        (
            b"GET /" + b"x" * 20_000 + HEAD[10:] + b"Connection: close\r\n\r\n",
            431,
            "The head of the request is too large.",
        ),
        (HEAD + b"X: y\r\n" * 101 + b"Connection: close\r\n\r\n", 431, "The head of the request is too large."),
        (b"GET /" + b"x" * 100_000, 431, "The head of the request is too large."),
        (b"hello\r\n\r\n", 400, "The request is malformed."),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n", 400, "The request is malformed."),
        (HEAD + b"Host: other\r\n\r\n", 400, "The request is malformed."),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400, "The request is malformed."),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", 501, "The transfer encoding of the request is not supported."),
        (HEAD, 408, "The head of the request did not arrive in time."),
    ],
)
def test_what_is_not_a_sound_request_is_refused(strict, capfd, request_, status, reason):
    assert response_to(strict, request_) == (status, {"detail": reason, "files": []})
    assert capfd.readouterr().err == ""


def test_a_damaged_body_is_refused_once(strict, capfd):
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    status, _ = response_to(strict, head + b"Transfer-Encoding: chunked\r\n\r\n5\r\n--x\r\n\r\nnot a chunk\r\n\r\n")
    assert status == 400
    assert capfd.readouterr().err == ""


def test_a_head_that_comes_byte_by_byte_is_given_up(strict):
    start = time.monotonic()
    with connect(strict) as connection, suppress(ConnectionError):
        for _ in range(100):
            connection.sendall(b"G")
            time.sleep(0.1)
    assert time.monotonic() - start < 5


def test_a_connection_without_a_request_is_closed(strict):
    with connect(strict) as connection:
        assert connection.recv(100) == b""
    with connect(strict) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.settimeout(10)
        while connection.recv(65536):
            pass


@pytest.mark.parametrize(("pause", "complete"), [(4.0, False), (0.5, True)])
def test_a_client_may_read_slowly_but_not_stop(fitted, pause, complete):
    app = make_app(fitted.model)
    app.add_api_route("/large", lambda: Response(bytes(LARGE)))
    with running(app, head_seconds=0.5, stalled_seconds=2.0) as address, connect(urlsplit(address)) as connection:
        connection.sendall(HEAD.replace(b"/model", b"/large") + b"Connection: close\r\n\r\n")
        received = 0
        while received < LARGE and (n_bytes := len(connection.recv(1 << 20, socket.MSG_WAITALL))):
            received += n_bytes
            if received % (8 << 20) < 1 << 20:
                time.sleep(pause)
    assert (received >= LARGE) == complete


def test_there_may_be_so_many_connections(strict):
    idle = [connect(strict) for _ in range(20)]
    try:
        with connect(strict) as connection:
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        assert received.startswith(b"HTTP/1.1 503 ")
        assert b"The server has too many connections." in received
    finally:
        for connection in idle:
            connection.close()


def test_a_dropped_connection_leaves_no_trace(strict, capfd):
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    for rest in (b"Content-Length: 900\r\n\r\n--x", b"Transfer-Encoding: chunked\r\n\r\n5\r\n--x"):
        with connect(strict) as connection:
            connection.sendall(head + rest)
    time.sleep(0.3)
    address = strict.geturl()
    assert httpx.get(f"{address}ready").status_code == 200
    assert "lmfcn_requests_in_progress 0" in httpx.get(f"{address}metrics").text
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2f..%2fapp.py",
        "/static/%2fetc%2fpasswd",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/static/%00",
        "/static/" + "x" * 5000,
        "/gallery/..%2f..%2fmodel",
    ],
)
def test_no_path_leads_out_of_the_folder(strict, path):
    request = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode()
    status, problem = response_to(strict, request)
    assert status in (404, 422), problem
    assert "/" not in problem["detail"]


def test_bodies_are_not_unpacked(strict):
    headers = {"Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=x"}
    body = gzip.compress(bytes(10_000_000))
    assert httpx.post(f"{strict.geturl()}predict", content=body, headers=headers).status_code == 400
