"""Independent pieces of work, one after the other, on all cores, or on many machines."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def as_completed(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
) -> Iterator[tuple[Argument, Result]]:
    """Yield every argument with its result, as soon as it is there.

    Parameters
    ----------
    function : callable
        Of one argument; for more than one process it and all values must be picklable.
    arguments : iterable
    jobs : int
        Number of processes on this machine.
    scheduler : str, optional
        Address of a running dask scheduler, such as "tcp://10.0.0.1:8786".
    """
    if jobs != 1 or scheduler is not None:
        raise NotImplementedError("Only one process so far.")
    for argument in arguments:
        yield argument, function(argument)
