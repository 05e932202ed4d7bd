"""Independent pieces of work, one after the other, on all cores, or on many machines."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, TypeVar, overload

from lmfcn.distribution.here import Here
from lmfcn.distribution.pool import LostWorkerError, Pool
from lmfcn.distribution.threads import WithThreads

__all__ = ["LostWorkerError", "WithThreads", "as_completed"]

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Caught = TypeVar("Caught", bound=Exception)


@overload
def as_completed(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument | None],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
) -> Iterator[tuple[Argument, Result]]: ...


@overload
def as_completed(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument | None],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    catch: type[Caught],
) -> Iterator[tuple[Argument, Result | Caught]]: ...


def as_completed(
    function: Callable[[Any], Any],
    arguments: Iterable[Any],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    catch: type[Exception] | tuple[()] = (),
) -> Iterator[tuple[Any, Any]]:
    """Yield every argument with its result, as soon as it is there.

    The function travels once to every process, an argument with every piece; nothing is asked of `arguments` before a
    process is free for it, so it may be endless. A process that dies loses only the piece that it was busy with, which
    is run again, up to three times. When the caller stops asking, all that is under way is given up.

    Parameters
    ----------
    function : callable
        Of one argument. In other processes it gets copies: large arrays in it are read-only there. Bits can depend on
        the number of threads, which differs between machines; `WithThreads` fixes it.
    arguments : iterable
        None stands for an argument that has to wait for a result: it is asked for again when the next one is there.
    jobs : int
        Number of processes on this machine, which share its cores; 1 stays in this process.
    scheduler : str, optional
        Address of a running dask scheduler, such as "tcp://10.0.0.1:8786"; every worker process of it gets one piece at
        a time, and `jobs` does not count.
    catch : exception class, optional
        What to yield in the place of a result; any other exception of a piece is raised here and stops the others. A
        piece that nobody survives is a `LostWorkerError`.

    Examples
    --------
    >>> sorted(as_completed(abs, [-2, 1]))
    [(-2, 2), (1, 1)]
    >>> list(as_completed(int, ["a"], catch=ValueError))
    [('a', ValueError("invalid literal for int() with base 10: 'a'"))]
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs must be a whole number from 1 up, got {jobs!r}.")
    return _flow(_pool(function, jobs, scheduler), iter(arguments), catch)


def _pool(function: Callable[[Any], Any], jobs: int, scheduler: str | None) -> Pool:
    if scheduler is not None:
        from lmfcn.distribution.cluster import Cluster

        return Cluster(function, scheduler)
    if jobs == 1:
        return Here(function)
    from lmfcn.distribution.processes import Processes

    return Processes(function, jobs)


def _flow(pool: Pool, arguments: Iterator[Any], catch: type[Exception] | tuple[()]) -> Iterator[tuple[Any, Any]]:
    with closing(pool):
        while True:
            for argument in islice(arguments, pool.n_free()):
                if argument is None:
                    if not pool.is_busy():
                        raise ValueError("An argument waits for a result, but nothing is under way.")
                    break
                pool.submit(argument)
            if not pool.is_busy():
                return
            for argument, result, error in pool.finished():
                if error is not None and not isinstance(error, catch):
                    raise error
                yield argument, result if error is None else error
