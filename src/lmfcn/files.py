"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file under a temporary name and rename it when it is complete."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it when it is complete and on the disk."""
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file under a temporary name; it gets its own when the block ends well, and goes when it does not."""
    with unfinished_file(path) as unfinished, unfinished.open("wb") as file:
        yield file


@contextmanager
def unfinished_file(path: str | Path) -> Iterator[Path]:
    """Give a temporary name to write to; it becomes `path` when the block ends well, and is removed if it does not."""
    path = Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
