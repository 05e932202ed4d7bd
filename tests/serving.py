"""Servers and uploads for tests of the web page."""

import io
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import uvicorn
from PIL import Image

from lmfcn.serve.server import browser_address, connections_for, listen


def content(image: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


@contextmanager
def running(app, **limits) -> Iterator[str]:
    """Run an application on a free port, with limits of connections; give its address."""
    with listen("127.0.0.1", 0) as listening:
        config = uvicorn.Config(app, http=connections_for(app, **limits), log_level="error", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield browser_address(listening)
        finally:
            server.should_exit = True
            thread.join(timeout=30)
    assert not thread.is_alive()


@dataclass
class Command:
    """`lmfcn serve` in a process of its own, and what it wrote to standard error."""

    process: subprocess.Popen
    address: str = ""
    lines: list[str] = field(default_factory=list)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=60)

    def wait_for(self, text: str) -> str:
        """Return the next line of standard error that contains a text."""
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} is not in {self.lines}")

    def stop(self) -> tuple[int, str, str]:
        """End it as a system does; return its exit code and what else it wrote."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextmanager
def serving_command(*arguments) -> Iterator[Command]:
    """Run the real command on a free port."""
    command = [sys.executable, "-m", "lmfcn", "serve", *map(str, arguments), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, process.stderr.read()
            yield Command(process, found.group())
        finally:
            process.kill()


def copy_model(source: Path, target: Path) -> Path:
    """Replace a model and its gallery by others, each at once."""
    for suffix in (".lmfcn", ".gallery"):
        new = target.with_name(f"new{suffix}")
        shutil.copy(source.with_suffix(suffix), new)
        new.replace(target.with_suffix(suffix))
    return target


def as_files(fitted, numbers):
    """Return some of the new images as a multipart form."""
    return [("files", (f"{i}.png", content(fitted.images[i]), "image/png")) for i in numbers]
