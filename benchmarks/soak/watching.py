"""What a piece of work costs, and what it prints: time, memory, open files, output."""

import io
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TooSlowError(BaseException):
    """A file takes far too long; no Exception, which the package would turn into a refusal."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError in a block that computes longer, as soon as it is back from C code."""

    def give_up(*_: object) -> None:
        raise TooSlowError(f"given up after {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def captured_output() -> Iterator[io.BufferedRandom]:
    """Send what is written to standard output and error, by C code too, into a file."""
    with tempfile.TemporaryFile() as file, warnings.catch_warnings():
        warnings.filterwarnings("always", append=True)
        saved = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield file
        finally:
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def peak_memory(reset: bool = False) -> int:
    """Return the largest size of this process in bytes since the last reset; 0 where the system does not say."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0


def open_files() -> int:
    """Return how many files this process has open; 0 where the system does not say."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
