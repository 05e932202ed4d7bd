"""`lmfcn serve` in a process of its own, and a client for it that needs no packages."""

import http.client
import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TOKEN = "a token for the soak"
BOUNDARY = "soak-boundary"


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen
    port: int
    errors: Path

    def memory(self) -> int:
        """Return its resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))

    def cpu_seconds(self) -> float:
        """Return how long it has computed."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> list[str]:
        """Return what it wrote to standard error."""
        return self.errors.read_text(encoding="utf-8").splitlines()


@contextmanager
def serve(program: Sequence[str], *arguments: object) -> Iterator[Server]:
    command = [*program, "serve", *map(str, arguments), "--port", "0", "--quiet"]
    environment = {**os.environ, "LMFCN_TOKEN": TOKEN}
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder) / "errors"
        with (
            errors.open("wb") as file,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True, env=environment) as process,
        ):
            try:
                line = process.stdout.readline()
                found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
                if found is None:
                    raise RuntimeError(f"The server did not start: {line}{errors.read_text(encoding='utf-8')}")
                yield Server(process, int(found.group(1)), errors)
            finally:
                process.kill()


@dataclass
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> dict:
        """Its content."""
        return json.loads(self.content)


class Client:
    """One connection that is kept open, as programs do."""

    def __init__(self, server: Server) -> None:
        self.port = server.port
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Send a request with the token; return the response."""
        headers = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def predict(self, files: Sequence[tuple[str, bytes]], query: str = "", **headers: str) -> Answer:
        """Ask for predictions."""
        return self.ask("POST", f"/predict{query}", form(files), {**FORM, **headers})

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()


def ask_once(server: Server, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    """Send one request on a connection of its own."""
    with closing(Client(server)) as client:
        return client.ask(method, path, body, headers)


FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def form(files: Sequence[tuple[str, bytes]]) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n'
    parts = [(head % name).encode() + content + b"\r\n" for name, content in files]
    return b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def raw_head(line: str, *headers: str) -> bytes:
    lines = [f"{line} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def encode(image: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()
