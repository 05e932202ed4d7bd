"""Write files completely or not at all, and lock files against other processes."""

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

_NO_LOCK_ERRORS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file under a temporary name and rename it when it is complete."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it when it is complete and on the disk."""
    with open_atomic(path) as file:
        file.write(content)


def append_bytes(path: Path, content: bytes) -> None:
    """Append to a file and wait until the disk has it; if that fails, the file is as it was."""
    before = path.stat().st_size if path.exists() else None
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        while content:
            content = content[os.write(handle, content) :]
        os.fsync(handle)
    except OSError as error:
        error.filename = str(path)
        if before is not None:
            os.ftruncate(handle, before)
        else:
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


@contextmanager
def open_atomic(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file under a temporary name; rename it if the block succeeds, and remove it if the block fails."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        yield file


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` if the block succeeds, else remove it."""
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file.")
    given, path = path, Path(os.path.realpath(path))  # replaces the target of a link, not the link
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with name_in_errors(given):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(given)  # the name that the user gave
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path, names: Iterable[str]) -> None:
    """Remove what killed processes left of files with these names, or patterns, that `atomic_path` was writing."""
    for name in names:
        for path in folder.glob(f"{name}.[0-9]*.part"):
            path.unlink(missing_ok=True)


@contextmanager
def name_in_errors(path: str | Path) -> Iterator[None]:
    """Add the name of the file to errors of writing to it, such as that of a full disk, which have none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK_ERRORS:
            error.filename = str(path)
        raise


def check_writable(path: str | Path) -> None:
    """Raise the error that writing a file would raise, before long work; no file is left behind."""
    path = Path(path)
    if path.is_file():
        path.open("ab").close()
        return
    with open_atomic(path):
        pass
    path.unlink()


@contextmanager
def create_folder(path: str | Path) -> Iterator[Path]:
    """Create a writable folder; if the block fails, remove it again if it is empty."""
    path = Path(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; give the name of a folder.")
    path.mkdir(parents=True, exist_ok=True)
    try:
        _check_writable_folder(path)
        yield path
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def _check_writable_folder(path: Path) -> None:
    try:
        check_writable(path / "lmfcn-was-here")
    except OSError as error:
        error.filename = str(path)  # the user knows nothing of the file
        raise


class LockFile:
    """A lock file beside a file that only one process may write at a time; it is removed when it is released.

    The lock file of a killed process stays behind, but is no longer locked. On file systems without locks, such as
    some network file systems, there is no lock.

    Parameters
    ----------
    path : path
        The file to write. The lock file has the same name with the ending .lock; for a link, it is beside the target.
    busy : str
        Message of the ValueError when another process has the lock.
    """

    def __init__(self, path: str | Path, busy: str) -> None:
        self.path = Path(f"{os.path.realpath(path)}.lock")
        self._lock = FileLock(self.path, thread_local=False, fallback_to_soft=False)
        if not self.path.parent.exists():  # filelock would create the folder
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            # Several tries, as another process may be removing the lock file at this moment.
            self._lock.acquire(timeout=0.1, poll_interval=0.02)
        except Timeout as error:
            raise ValueError(busy) from error
        except OSError as error:
            self._ignore_missing_locks(error, path)

    def __enter__(self) -> "LockFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Unlock and remove the lock file; a second call does nothing."""
        if not self._lock.is_locked:
            return
        # Remove it while it is locked: a process that has opened it meanwhile finds it removed, and creates a new one.
        if sys.platform != "win32":  # there an open file cannot be removed, and filelock removes it later
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def _ignore_missing_locks(self, error: OSError, path: str | Path) -> None:
        if error.errno not in _NO_LOCK_ERRORS:
            error.filename = str(path)  # the name that the user gave
            raise error
        self.path.unlink(missing_ok=True)
