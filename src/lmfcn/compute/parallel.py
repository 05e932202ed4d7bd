"""Run independent tasks in this process, in several worker processes, or on a dask cluster."""

import asyncio
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import numpy as np

from lmfcn.util.packages import versions

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Caught = TypeVar("Caught", bound=Exception)

N_TRIES = 3
"""How many processes may die on a task before it is given up."""
_LARGE_BYTES = 2**20
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POLL_SECONDS = 5.0
_SECONDS_BETWEEN_LOOKS = 1.0


class LostWorkerError(RuntimeError):
    """Every worker process that ran this task died."""


class Workers(NamedTuple):
    """Where tasks run.

    Attributes
    ----------
    jobs : int
        Number of processes on this machine; 1 is this process.
    scheduler : str or None
        Address of a dask scheduler, whose workers are used instead.
    """

    jobs: int = 1
    scheduler: str | None = None

    @property
    def serial(self) -> bool:
        """Whether tasks run in this process, one after the other."""
        return self.jobs == 1 and self.scheduler is None


_IN_USE: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def use_workers(*, jobs: int = 1, scheduler: str | None = None) -> Iterator[None]:
    """Make the estimators that are fitted inside the block use these workers, whatever their `n_jobs` is.

    Tasks of `as_completed` run inside such a block with one job, so they start no processes themselves.

    Parameters
    ----------
    jobs : int
        Number of processes on this machine.
    scheduler : str, optional
        Address of a running dask scheduler to use instead, such as "tcp://10.0.0.1:8786".
    """
    _check_positive(jobs)
    token = _IN_USE.set(Workers(jobs, scheduler))
    try:
        yield
    finally:
        _IN_USE.reset(token)


def workers_of(n_jobs: int | None) -> Workers:
    """Return the workers of an estimator: those of `use_workers`, or else `n_jobs` processes."""
    return _IN_USE.get() or Workers(effective_n_jobs(n_jobs))


def effective_n_jobs(n_jobs: int | None) -> int:
    """Return the number of processes for `n_jobs`, as in scikit-learn: None is 1, -1 all cores, -2 all but one.

    Examples
    --------
    >>> effective_n_jobs(None), effective_n_jobs(3), effective_n_jobs(-1) == n_cores()
    (1, 3, True)
    """
    if n_jobs is None:
        return 1
    return n_jobs if n_jobs > 0 else max(1, n_cores() + 1 + n_jobs)


def n_cores() -> int:
    """Return how many cores this process may use."""
    from loky import cpu_count

    return int(cpu_count())


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
    """Yield every argument with its result, in the order in which tasks finish.

    The function is sent once to every worker, an argument with every task. An argument is taken only when a worker is
    free, so `arguments` may be endless. If a worker process dies, its task runs again, up to three times in all. When
    the caller stops iterating, all running tasks are cancelled.

    Parameters
    ----------
    function : callable
        Takes one argument. Workers get copies, in which large arrays are read-only. The last bits of results can
        depend on the number of threads, which differs between machines; `WithThreads` fixes it.
    arguments : iterable
        None means that the next argument depends on a result: the iterator is asked again after the next result.
    jobs : int
        Number of processes on this machine, which share its cores; 1 means this process.
    scheduler : str, optional
        Address of a running dask scheduler, such as "tcp://10.0.0.1:8786"; each of its worker processes runs one
        task at a time, and `jobs` is ignored.
    catch : exception class, optional
        Exceptions to yield instead of a result; any other exception of a task is raised here and stops the others. A
        task on which every worker died raises `LostWorkerError`.

    Examples
    --------
    >>> sorted(as_completed(abs, [-2, 1]))
    [(-2, 2), (1, 1)]
    >>> list(as_completed(int, ["a"], catch=ValueError))
    [('a', ValueError("invalid literal for int() with base 10: 'a'"))]
    """
    _check_positive(jobs)
    pool: Pool
    if scheduler is not None:
        pool = DaskPool(function, scheduler)
    else:
        pool = SerialPool(function) if jobs == 1 else ProcessPool(function, jobs)
    return collect_results(pool, arguments, catch)


def collect_results(
    pool: "Pool", arguments: Iterable[Any], catch: type[Exception] | tuple[()] = ()
) -> Iterator[tuple[Any, Any]]:
    """Yield every argument with its result from a pool, and close the pool at the end; see `as_completed`."""
    arguments = iter(arguments)
    with closing(pool):
        while True:
            for argument in islice(arguments, pool.n_free()):
                if argument is None:
                    if not pool.is_busy():
                        raise ValueError("An argument depends on a result, but no task is running.")
                    break
                pool.submit(argument)
            if not pool.is_busy():
                return
            for argument, result, error in pool.finished():
                if error is not None and not isinstance(error, catch):
                    raise error
                yield argument, result if error is None else error


class Finished(NamedTuple):
    """A finished task: its argument, with its result or its exception."""

    argument: Any
    result: Any = None
    error: Exception | None = None


class Pool(Protocol):
    """Workers that run one function, each of them one task at a time."""

    def n_free(self) -> int:
        """Return how many workers are free."""

    def is_busy(self) -> bool:
        """Return whether any task is running."""

    def submit(self, argument: Any) -> None:
        """Start a task; there must be a free worker."""

    def finished(self) -> Iterable[Finished]:
        """Wait for tasks and return the finished ones; none if there may be new workers."""

    def close(self) -> None:
        """Cancel all running tasks."""


class SerialPool:
    """A pool with this process as its only worker.

    Parameters
    ----------
    function : callable
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._submitted: list[Any] = []

    def n_free(self) -> int:
        """Return 1 if no task is waiting."""
        return 1 - len(self._submitted)

    def is_busy(self) -> bool:
        """Return whether a task is waiting."""
        return bool(self._submitted)

    def submit(self, argument: Any) -> None:
        """Keep the argument of the next task."""
        self._submitted.append(argument)

    def finished(self) -> list[Finished]:
        """Run the task."""
        argument = self._submitted.pop()
        try:
            return [Finished(argument, self._function(argument))]
        except Exception as error:
            return [Finished(argument, error=error)]

    def close(self) -> None:
        """Do nothing, as no task runs between two calls."""


class ProcessPool:
    """Worker processes on this machine; if one dies, the others continue.

    Parameters
    ----------
    function : callable
        Written once to a temporary folder; the processes share its large arrays by memory mapping.
    jobs : int
        Number of processes.
    """

    def __init__(self, function: Callable[[Any], Any], jobs: int) -> None:
        self._n_threads = max(1, n_cores() // jobs)
        self._folder = Path(tempfile.mkdtemp(prefix="lmfcn-"))
        self._free: list[Any] = [None] * jobs  # started with their first task
        self._running: dict[Future[Any], tuple[Any, Any, int]] = {}  # executor, argument, number of tries
        try:
            _write_function(function, self._folder)
        except BaseException:
            self.close()
            raise
        # loky replaces a process whose memory has grown between two tasks; users need no warning about it.
        warnings.filterwarnings("ignore", message="A worker (stopped|was restarted) while some jobs")

    def n_free(self) -> int:
        """Return how many processes are free."""
        return len(self._free)

    def is_busy(self) -> bool:
        """Return whether any process has a task."""
        return bool(self._running)

    def submit(self, argument: Any) -> None:
        """Give a task to a free process."""
        self._start(self._free.pop(), argument, 1)

    def finished(self) -> list[Finished]:
        """Wait for at least one task; restart tasks whose process died."""
        found: list[Finished] = []
        while not found:
            for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                found += self._collect(future)
        return found

    def close(self) -> None:
        """Kill all processes and remove the temporary folder."""
        for executor in [*self._free, *(executor for executor, *_ in self._running.values())]:
            if executor is not None:
                executor.shutdown(kill_workers=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, executor: Any, argument: Any, n_tries: int) -> None:
        from loky import ProcessPoolExecutor

        if executor is None:
            # One executor per process: loky cancels all tasks of an executor when one of its processes dies.
            environment = dict.fromkeys(_THREAD_VARIABLES, str(self._n_threads))
            about = os.getpid(), str(self._folder)
            executor = ProcessPoolExecutor(1, initializer=_prepare_worker, initargs=about, env=environment)
        self._running[executor.submit(_run_from_folder, str(self._folder), argument)] = executor, argument, n_tries

    def _collect(self, future: Future[Any]) -> list[Finished]:
        from loky.process_executor import TerminatedWorkerError

        executor, argument, n_tries = self._running.pop(future)
        error = future.exception()
        if isinstance(error, TerminatedWorkerError):
            executor.shutdown()
            if n_tries < N_TRIES:
                self._start(None, argument, n_tries + 1)
                return []
            executor, error = None, _lost_worker(argument, n_tries)
        self._free.append(executor)
        if error is not None and not isinstance(error, Exception):
            raise error
        return [Finished(argument, future.result() if error is None else None, error)]


class DaskPool:
    """The worker processes of a running dask cluster; their number may change.

    Parameters
    ----------
    function : callable
        Sent once; workers send it to each other.
    address : str
        Address of the scheduler.
    seconds_to_answer : float
        Time after which a scheduler that does not answer is given up.
    seconds_without_workers : float
        Time after which a cluster without workers is given up; a batch system may take long to replace a worker.
    expected : mapping of str, optional
        Package versions that every worker must have; by default those of this process.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        address: str,
        *,
        seconds_to_answer: float = 10.0,
        seconds_without_workers: float = 60.0,
        expected: Mapping[str, str] | None = None,
    ) -> None:
        content = _pickle(function)
        self._dask, self._distributed = _dask_packages()
        self._address, self._expected = address, versions() if expected is None else expected
        self._seconds_to_answer, self._seconds_without_workers = seconds_to_answer, seconds_without_workers
        self._running: dict[Any, tuple[Any, str]] = {}  # from futures to arguments and workers
        self._free: list[str] = []
        self._known: set[str] = set()
        self._client = self._connect()
        try:
            self._workers()
            self._function = self._send(content)
        except BaseException:
            self.close()
            raise

    def n_free(self) -> int:
        """Return how many workers are free; at least one if no task is running, even if other clients use it."""
        workers, busy = self._workers(), {worker for _, worker in self._running.values()}
        own = {self._function.key}
        self._free = [worker for worker, tasks in workers.items() if own.issuperset(tasks) and worker not in busy]
        if not self._free and not self._running:
            self._free = list(workers)[:1]
        return len(self._free)

    def is_busy(self) -> bool:
        """Return whether any task is running."""
        return bool(self._running)

    def submit(self, argument: Any) -> None:
        """Give a task to a free worker.

        The scheduler itself prefers workers that already have the function, and leaves others idle.
        """
        worker = self._free.pop()
        options = {"workers": [worker], "allow_other_workers": True, "pure": False}
        with self._connection():
            self._running[self._client.submit(_run, self._function, argument, **options)] = argument, worker

    def finished(self) -> list[Finished]:
        """Wait for tasks, but not for long, as there may be new workers.

        The scheduler itself restarts the tasks of a worker that died.
        """
        with self._connection(), self._client.as_current(), suppress(TimeoutError):
            self._distributed.wait(list(self._running), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
        with self._connection():
            return [self._collect(future) for future in list(self._running) if future.done()]

    def close(self) -> None:
        """Cancel tasks that have not started, and disconnect; the results of running tasks are dropped."""
        with suppress(OSError, CancelledError, TimeoutError, RuntimeError):
            self._client.cancel(list(self._running), force=True)
        self._client.close(timeout=2)

    def _send(self, content: bytes) -> Any:
        """Send the function and return its future; as a task, because scattered data is lost with the last worker."""
        with self._connection(), self._dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            return self._client.submit(pickle.loads, content, pure=False)

    def _collect(self, future: Any) -> Finished:
        argument, _ = self._running.pop(future)
        if future.cancelled():
            raise CancelledError
        error = future.exception()
        if error is None:
            return Finished(argument, future.result())
        if isinstance(error, self._distributed.KilledWorker):
            return Finished(argument, error=_lost_worker(argument, error.allowed_failures + 1))
        return Finished(argument, error=error.with_traceback(future.traceback()))

    def _connect(self) -> Any:
        _check_address(self._address, self._distributed)
        try:
            # A client that cannot connect waits, and prints a traceback when it is closed; so try to connect first.
            with ThreadPoolExecutor(1) as other_thread:  # in a notebook, this thread runs an event loop
                trial = _try_connection(self._address, self._distributed, self._seconds_to_answer)
                other_thread.submit(asyncio.run, trial).result()
            return self._distributed.Client(self._address, timeout=self._seconds_to_answer, set_as_default=False)
        except Exception as error:  # each protocol has its own exceptions
            reason = str(error) or f"nothing came back for {self._seconds_to_answer:.0f} seconds"
            raise ConnectionError(
                f"No dask scheduler answers at {self._address} ({reason}); start one with `dask scheduler`, which"
                " prints its address."
            ) from error

    @contextmanager
    def _connection(self) -> Iterator[None]:
        """Raise an error that names the scheduler if the connection is lost."""
        try:
            yield
        except (OSError, CancelledError) as error:
            if isinstance(error, ConnectionError):
                raise
            raise ConnectionError(f"The connection to the dask scheduler at {self._address} is lost.") from error

    def _workers(self) -> dict[str, Any]:
        """Return the tasks of all workers by address; wait for at least one worker, and check new ones."""
        with self._connection():
            workers = self._client.processing()
            if not workers:
                self._wait_for_workers()
                workers = self._client.processing()
            if not self._known.issuperset(workers):
                threads = self._client.nthreads()
                self._check_workers({worker: n for worker, n in threads.items() if worker not in self._known})
        return dict(workers)

    def _wait_for_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=self._seconds_without_workers)
        except TimeoutError as error:
            raise ConnectionError(
                f"The cluster at {self._address} has had no worker for {self._seconds_without_workers:.0f} seconds;"
                f" start some with `dask worker {self._address}`."
            ) from error

    def _check_workers(self, n_threads: dict[str, int]) -> None:
        """Refuse new workers with other package versions, whose results could differ; `n_threads` by worker."""
        if not n_threads:
            return
        for worker, found in self._client.run(versions, workers=list(n_threads), on_error="return").items():
            if isinstance(found, ImportError):
                raise ImportError(f"Worker {worker} has no lmfcn ({found}); install the same version there as here.")
            if isinstance(found, Exception):
                continue  # the worker has stopped
            _check_versions(worker, found, self._expected)
            self._known.add(worker)
        if max(n_threads.values()) > 1:
            warnings.warn(
                f"A worker has {max(n_threads.values())} threads, but runs one task at a time; with"
                " `dask worker --nworkers N --nthreads 1` N tasks run at a time.",
                UserWarning,
                stacklevel=2,
            )


def _check_positive(jobs: int) -> None:
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"jobs must be a whole number from 1 up, got {jobs!r}.")


def _run(function: Callable[[Any], Any], argument: Any) -> Any:
    """Run a task in a worker."""
    with use_workers(jobs=1):
        return function(argument)


def _lost_worker(argument: Any, n_times: int) -> LostWorkerError:
    text = str(argument)
    short = text if len(text) <= 80 else f"{text[:77]}..."
    return LostWorkerError(
        f"{n_times} processes died one after the other while they worked on {short}; the likeliest reason is too little"
        " memory for so many at once."
    )


def _pickle(function: Callable[[Any], Any], keep_buffer: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Pickle a function; arrays for which `keep_buffer` returns False are left out."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(function, protocol=5, buffer_callback=keep_buffer))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"This function cannot be sent to other processes: {error}.") from error


def _write_function(function: Callable[[Any], Any], folder: Path) -> None:
    """Write a function and its large arrays, for `_read_function` in other processes."""
    arrays: list[pickle.PickleBuffer] = []

    def keep_buffer(array: pickle.PickleBuffer) -> bool:
        large = array.raw().nbytes >= _LARGE_BYTES
        arrays.extend([array] if large else [])
        return not large

    content = _pickle(function, keep_buffer)
    for number, array in enumerate(arrays):
        with (folder / f"{number}.array").open("wb") as file:
            file.write(array.raw())
    (folder / "function.pickle").write_bytes(content)


@cache
def _read_function(folder: Path) -> Callable[[Any], Any]:
    """Return the function of the parent process; its large arrays are read-only views of files."""
    paths = sorted(folder.glob("*.array"), key=lambda path: int(path.stem))
    arrays = [np.memmap(path, mode="r") for path in paths]
    return pickle.loads((folder / "function.pickle").read_bytes(), buffers=arrays)


def _run_from_folder(folder: str, argument: Any) -> Any:
    return _run(_read_function(Path(folder)), argument)


def _prepare_worker(parent: int, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    threading.Thread(target=_end_with, args=(parent, folder), daemon=True).start()


def _end_with(parent: int, folder: str) -> None:
    """End this worker, and remove the pool's folder, when the main process was killed, which could not tell anybody."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _dask_packages() -> tuple[Any, Any]:
    try:
        import dask
        import distributed
    except ImportError as error:
        raise ImportError(f"A cluster needs dask.distributed: pip install 'lmfcn[cluster]' ({error}).") from error
    return dask, distributed


def _check_address(address: str, distributed: Any) -> None:
    """Refuse an invalid address of a scheduler, before waiting for an answer."""
    example = "tcp://10.0.0.1:8786, which `dask scheduler` prints"
    if address.startswith(("http://", "https://")):
        raise ValueError(f"{address} looks like the dashboard's address; give the scheduler's, such as {example}.")
    try:
        host, _ = distributed.comm.get_address_host_port(address)
    except ValueError:
        host = ""
    if not host:
        raise ValueError(f"The address of a dask scheduler must be like {example}, got {address!r}.")


def _check_versions(worker: str, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    differences = [
        f"{name} {found[name]} instead of {expected[name]}" for name in expected if found[name] != expected[name]
    ]
    if differences:
        raise ValueError(f"Worker {worker} has {', '.join(differences)}; install the same versions everywhere.")


async def _try_connection(address: str, distributed: Any, seconds: float) -> None:
    """Connect and disconnect; fail after some seconds even if a server listens but does not answer."""
    options = distributed.Security().get_connection_args("client")
    async with asyncio.timeout(seconds):
        connection = await distributed.comm.connect(address, timeout=seconds, **options)
    await connection.close()
