"""Files that one process at a time writes."""

import os
import sys
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl


def open_alone(path: Path) -> BinaryIO:
    """Open a file to read it and to append to it; if it is not there, it is made.

    Until it is closed, whoever opens it in the same way gets a BlockingIOError. Where the system or the file system
    knows no such locks, nobody is kept out.
    """
    while True:
        file = path.open("a+b")
        try:
            _lock(file)
            if _is_there(file, path):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # whoever had it until now has removed it


def remove_alone(file: BinaryIO, path: Path) -> None:
    """Remove a file that was opened so; nobody can come in between."""
    if sys.platform == "win32":  # where an open file cannot be removed
        file.close()
    path.unlink(missing_ok=True)
    file.close()


def _lock(file: BinaryIO) -> None:
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            return  # some file systems of networks cannot


def _is_there(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
