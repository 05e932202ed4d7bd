"""Requests that the service must refuse, byte for byte."""

import struct
import zlib

import numpy as np

from soak.served import FORM, TOKEN, encode, form, raw_head


def png_of(height: int, width: int) -> bytes:
    """Return a small PNG whose header claims a large image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1_000_000))) + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    """Return a PNG of one pixel row with a compressed text of 100 MB."""
    data = b"Comment\x00\x00" + zlib.compress(bytes(100_000_000))
    bomb = struct.pack(">I", len(data)) + b"zTXt" + data + struct.pack(">I", zlib.crc32(b"zTXt" + data))
    image = encode(np.zeros((48, 48), np.uint8))
    return image[:33] + bomb + image[33:]


def attacks() -> dict[str, list[tuple[str, bytes, set[int]]]]:
    """Return by kind the name, the bytes and the right statuses of requests that must be refused."""
    model = raw_head("GET /model", "Connection: close")
    paths = ("/static/../app.py", "/static/..%2f..%2fapp.py", "/static/%2e%2e/%2e%2e/cli/serve.py", "/static/%00",
             "/static//etc/passwd", "/static/..%5capp.py", "/gallery/..%2f..%2fmodel")  # fmt: skip
    return {
        "wrong token": [
            ("none", model.replace(b"Authorization", b"X"), {401}),
            ("another", model.replace(TOKEN.encode(), b"wrong"), {401}),
            ("for metrics", model.replace(b"Authorization", b"X").replace(b"/model", b"/metrics"), {401}),
        ],
        "wrong Host": [
            (host, model.replace(b"localhost", host.encode()), {400}) for host in ("evil.example", "localhost.evil", "")
        ],
        "pages of other origins": [
            (header, model.replace(b"Connection", f"{header}\r\nConnection".encode()), {403})
            for header in ("Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
                           "Sec-Fetch-Site: same-site")
        ],
        "path traversal": [(path, raw_head(f"GET {path}", "Connection: close"), {404, 422}) for path in paths],
        "header floods": [
            ("many", raw_head("GET /model", *["X: y"] * 100_000), {431}),
            ("long", raw_head("GET /model", f"X: {'x' * 10_000_000}"), {431}),
            ("long address", raw_head(f"GET /{'x' * 100_000}"), {431}),
            ("just too many", raw_head("GET /model", "Connection: close", *["X: y"] * 120), {431}),
        ],
        "decompression bombs": [
            ("pixels", upload(png_of(50_000, 50_000)), {413}),
            ("text", upload(text_bomb()), {422}),
            ("gzip body", raw_upload(zlib.compress(bytes(10_000_000)), "Content-Encoding: gzip"), {400}),
        ],
        "no HTTP": [
            ("words", b"hello\r\n\r\n", {400}),
            ("two lengths", raw_head("POST /predict", "Content-Length: 5", "Content-Length: 6"), {400}),
            ("unknown encoding", raw_head("POST /predict", "Transfer-Encoding: gzip"), {501}),
        ],
        "slow heads": [("half a head", raw_head("GET /model")[:-4], {408})],
    }  # fmt: skip


def upload(content: bytes) -> bytes:
    return raw_upload(form([("a.png", content)]))


def raw_upload(body: bytes, *headers: str) -> bytes:
    told = [f"{name}: {value}" for name, value in FORM.items()]
    return raw_head("POST /predict", f"Content-Length: {len(body)}", "Connection: close", *told, *headers) + body
