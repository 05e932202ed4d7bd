"""How many threads a process computes with, so that results do not depend on where they are computed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from lmfcn.compute.parallel import use_workers

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_ONE_AT_A_TIME = threading.RLock()
"""Numbers of threads belong to the whole process, and so does its computing time."""


class ThreadCounts(NamedTuple):
    """Numbers of threads that a fit computes with.

    Attributes
    ----------
    process : int
        For everything but the training of networks.
    network : int
        For the training of each network.
    """

    process: int
    network: int

    def __str__(self) -> str:
        per_network = "" if self.network == self.process else f", {self.network} per network"
        return f"{self.process} thread{'s' * (self.process != 1)}{per_network}"


@dataclass(frozen=True)
class WithThreads(Generic[Argument, Result]):
    """A function that always computes with the same number of threads, and in a single process.

    Sums of floating-point numbers that several threads share are rounded differently from those of one thread, so that
    the bits of a trained network depend on the number of threads. With this number fixed they do not depend on the
    cores of a machine, nor on how much else runs there. Estimators inside of the function treat any `n_jobs` as 1.

    Parameters
    ----------
    function : callable
        Of one argument.
    n_threads : int

    Examples
    --------
    >>> WithThreads(abs, 1)(-3)
    3
    """

    function: Callable[[Argument], Result]
    n_threads: int = 1

    def __call__(self, argument: Argument) -> Result:
        """Return what the function returns."""
        with _ONE_AT_A_TIME, n_threads(self.n_threads), use_workers(jobs=1):
            return self.function(argument)


@contextmanager
def n_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside of the block: PyTorch's own and those of BLAS and OpenMP libraries.

    Blocks may be nested, and several threads of a process may enter and leave them in any order: the numbers from
    before the first block are restored when the last one ends. While blocks with different counts overlap in several
    threads, PyTorch keeps to the count of each thread, and BLAS to that of the last block that was entered.

    Examples
    --------
    >>> import torch
    >>> with n_threads(1):
    ...     torch.get_num_threads()
    1
    """
    outer = getattr(_OF_THIS_THREAD, "count", None)
    _BLOCKS.enter(count)
    _OF_THIS_THREAD.count = count
    try:
        yield
    finally:
        _OF_THIS_THREAD.count = outer
        _BLOCKS.leave(count, outer)


class _Blocks:
    """The blocks that are open in this process, and what to restore after the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: list[int] = []
        self._n_before = 0
        self._libraries_before: list[tuple[Any, int]] = []

    def enter(self, count: int) -> None:
        """Set the numbers of this process and of this thread."""
        import torch

        with self._lock:
            n_now, libraries = torch.get_num_threads(), _libraries()
            if not self._counts:
                self._n_before = n_now
                self._libraries_before = [(library, library.num_threads) for library in libraries]
            self._counts.append(count)
            self._set(libraries, count)

    def leave(self, count: int, outer: int | None) -> None:
        """Go back to the blocks that are still open, and this thread to its `outer` block, if it is in one."""
        import torch

        with self._lock:
            self._counts.remove(count)
            if not self._counts:
                for library, n_before in self._libraries_before:
                    _set_library(library, n_before)
                torch.set_num_threads(self._n_before)
                return
            libraries = _libraries()
            self._set(libraries, self._counts[-1])
            # OpenMP has a number for every thread of a process, which nobody but this one can set.
            for library in libraries:
                if library.user_api == "openmp":
                    _set_library(library, self._n_before if outer is None else outer)

    def _set(self, libraries: list[Any], count: int) -> None:
        import torch

        for library in libraries:
            _set_library(library, count)
        torch.set_num_threads(count)


def _libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().lib_controllers)


def _set_library(library: Any, count: int) -> None:
    library.set_num_threads(count)
    # From threadpoolctl 3.8 on, the first thread that sets OpenBLAS is the only one that can, until it gives this up.
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread()


_BLOCKS = _Blocks()
_OF_THIS_THREAD = threading.local()
