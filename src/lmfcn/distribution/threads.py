"""How many threads a piece of work computes with, so that its result does not depend on where it runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import joblib

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_ONE_AT_A_TIME = threading.RLock()
"""Numbers of threads belong to the whole process, and so does its computing time."""


@dataclass(frozen=True)
class WithThreads(Generic[Argument, Result]):
    """A function that always computes with the same number of threads, and with no process beside its own.

    Sums of floating-point numbers that threads share out are rounded otherwise than those of one thread, so that the
    bits of a trained network depend on how many there are. With this number fixed they do not depend on the cores of
    a machine, nor on how much else runs there.

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
        with _ONE_AT_A_TIME, fixed_threads(self.n_threads), joblib.parallel_config(backend="sequential"):
            return self.function(argument)


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside of the block: PyTorch's own and those of BLAS and OpenMP libraries."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
