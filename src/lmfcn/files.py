"""Files that are there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file under a temporary name and rename it when it is complete."""
    _write_whole(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it when it is complete and on the disk."""

    def write(unfinished: Path) -> None:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    _write_whole(path, write)


def _write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        write(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
