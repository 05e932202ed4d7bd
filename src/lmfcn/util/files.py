"""Files that are there whole or not at all, and that one process at a time writes."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


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


class LockFile:
    """A lock file beside a file that one process at a time may write; it goes when it is released.

    A process that is killed leaves it behind, where it keeps nobody out. On file systems without locks, as on some
    networks, nobody is kept out either.

    Parameters
    ----------
    path : path
        Of the file to write; the lock file has the same name and the ending .lock, beside the target of a link.
    busy : str
        Message of the ValueError when another process has the lock.
    """

    def __init__(self, path: str | Path, busy: str) -> None:
        self.path = Path(f"{os.path.realpath(path)}.lock")
        self._lock = FileLock(self.path, thread_local=False, fallback_to_soft=False)
        if not self.path.parent.exists():  # filelock would make the folder
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            # Some tries: another process may be removing the lock file just now.
            self._lock.acquire(timeout=0.1, poll_interval=0.02)
        except Timeout as error:
            raise ValueError(busy) from error
        except OSError as error:
            self._go_without(error, path)

    def __enter__(self) -> "LockFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Remove the lock file and let others in; nothing happens the second time."""
        if not self._lock.is_locked:
            return
        # Removed while it is locked: whoever has opened it meanwhile finds it gone, and makes a new one.
        if sys.platform != "win32":  # where an open file cannot be removed, and filelock does it afterwards
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def _go_without(self, error: OSError, path: str | Path) -> None:
        if error.errno not in _WITHOUT_LOCKS:
            error.filename = str(path)  # the only name that the user knows
            raise error
        self.path.unlink(missing_ok=True)
