"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    given, path = path, Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        if error.filename == str(unfinished):
            error.filename = str(given)  # the only name that the user knows
        raise
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise now the error that writing a file would raise after long work; nothing is left there."""
    path = Path(path)
    if path.is_file():
        path.open("ab").close()
        return
    with whole_file(path):
        pass
    path.unlink()


@contextmanager
def made_folder(path: str | Path) -> Iterator[Path]:
    """Make a folder that can be written to; if the block fails, it goes again unless something is in it."""
    path = Path(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; give the name of a folder.")
    path.mkdir(parents=True, exist_ok=True)
    try:
        check_writable(path / "lmfcn-was-here")
        yield path
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise
