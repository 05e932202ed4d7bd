"""Servers and uploads for tests of the web page."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import uvicorn
from PIL import Image

from lmfcn.serve.server import browser_address, listen


def content(image: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


@contextmanager
def running(app) -> Iterator[str]:
    """Run an application on a free port; give its address."""
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield browser_address(listening)
        finally:
            server.should_exit = True
            thread.join(timeout=30)
    assert not thread.is_alive()


def as_files(fitted, numbers):
    """Return some of the new images as a multipart form."""
    return [("files", (f"{i}.png", content(fitted.images[i]), "image/png")) for i in numbers]
