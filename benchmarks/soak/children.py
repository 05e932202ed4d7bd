"""Processes that are forked from this one, so that they start at once, and that are killed or lose the power."""

import contextlib
import importlib
import os
import pkgutil
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lmfcn

_ALSO = ("sklearn.linear_model", "sklearn.model_selection", "sklearn.svm", "torch._dynamo", "torch._inductor.utils")
"""What the first training would import, in every child again."""
_SYNCED = ".synced"
_UNFIT = ("Traceback", "[Errno")
"""In no sentence for users."""


def import_all() -> None:
    """Import everything of ours, and what it imports late, before the first fork."""
    names = [module.name for module in pkgutil.walk_packages(lmfcn.__path__, "lmfcn.")]
    for name in (*names, *_ALSO):
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, or the negative number of the signal, and what it printed."""

    code: int
    text: str

    @property
    def refused(self) -> bool:
        """Whether it ended as after a mistake of the user: one sentence, no traceback."""
        return self.code == 2 and "Error: " in self.text and not any(word in self.text for word in _UNFIT)


@dataclass(frozen=True)
class Child:
    """A running child, which leads a group of processes."""

    number: int
    log: Path

    def wait(self) -> Ended:
        """Wait for its end."""
        status = os.waitpid(self.number, 0)[1]
        return Ended(os.waitstatus_to_exitcode(status), self.log.read_text(encoding="utf-8", errors="replace"))

    def kill_after(self, seconds: float) -> Ended:
        """Let it run for so long, then kill it, unless it has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if os.waitid(os.P_PID, self.number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return self.wait()
            time.sleep(0.002)
        os.kill(self.number, signal.SIGKILL)
        return self.wait()

    def left_behind(self, seconds: float = 30.0) -> bool:
        """Return whether its own children are still there after some time; end them."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                os.killpg(self.number, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.1)
        os.killpg(self.number, signal.SIGKILL)
        return True


def start(work: Callable[[], object], folder: Path) -> Child:
    """Start a child that does some work in a folder; its output and what it has synced are in files beside that."""
    log, code = folder.with_name(f"{folder.name}.log"), 1
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            code = _run(work, folder, log)
        finally:
            os._exit(code)  # never up the stack, whose blocks belong to the parent
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(child, child)
    return Child(child, log)


def _run(work: Callable[[], object], folder: Path, log: Path) -> int:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(output, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    record_syncs(folder.with_name(folder.name + _SYNCED))
    try:
        os.chdir(folder)
        work()
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def run_command(*arguments: object) -> None:
    """Run a command as a user does: a mistake is one sentence and exit code 2."""
    from lmfcn.__main__ import main

    sys.argv = ["lmfcn", *map(str, arguments)]
    main()


def record_syncs(path: Path) -> None:
    """Note in a file which files this process has synced, and how long they were."""
    really = os.fsync
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def fsync(handle: int) -> None:
        really(handle)
        status = os.fstat(handle)
        os.write(log, f"{status.st_ino} {status.st_size}\n".encode())

    os.fsync = fsync


def note_all_as_synced(folder: Path) -> None:
    """Take all that is in a folder for synced, as before a new piece of work."""
    lines = [f"{path.stat().st_ino} {path.stat().st_size}\n" for path in folder.rglob("*") if path.is_file()]
    folder.with_name(folder.name + _SYNCED).write_text("".join(lines), encoding="ascii")


def lose_power(folder: Path, chance: random.Random) -> None:
    """Cut or clear what was written and not synced, as a file system may leave it after a loss of power."""
    log = folder.with_name(folder.name + _SYNCED).read_text(encoding="ascii").splitlines()
    synced = {int(number): int(size) for number, size in (line.split() for line in log)}
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        status = path.stat()
        safe = min(synced.get(status.st_ino, 0), status.st_size)
        if safe < status.st_size:
            _damage(path, chance.choice((safe, chance.randint(safe, status.st_size))), status.st_size, chance)


def _damage(path: Path, keep: int, size: int, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(keep)
        if chance.random() < 0.3:
            file.truncate(size)  # zeros
