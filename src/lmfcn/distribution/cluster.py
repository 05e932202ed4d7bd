"""Work on the machines of a running dask.distributed cluster."""

import asyncio
import pickle
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from lmfcn.distribution.pool import Outcome, lost, pack
from lmfcn.versions import versions

SECONDS_TO_ANSWER = 10.0
"""After which a scheduler is given up."""
SECONDS_WITHOUT_WORKERS = 60.0
"""After which a cluster is given up, at the start or later; a batch system may take a while to replace one."""
_LOOK_AGAIN = 5.0


class Cluster:
    """The worker processes of a cluster, however many there are at the moment; each gets one piece at a time.

    Parameters
    ----------
    function : callable
        Sent once; workers pass it on to each other.
    address : str
    """

    def __init__(self, function: Callable[[Any], Any], address: str) -> None:
        content = pack(function)
        self._dask, self._distributed = _packages()
        self._address = address
        self._running: dict[Any, tuple[Any, str]] = {}  # from futures to arguments and the workers they were given to
        self._idle: list[str] = []
        self._known: set[str] = set()
        self._client = self._connect()
        try:
            self._workers()
            # A task, not scattered data: those would be gone with the last worker that holds them.
            with self._connection(), self._dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
                self._function = self._client.submit(pickle.loads, content, pure=False)
        except BaseException:
            self.close()
            raise

    def n_free(self) -> int:
        """Return how many workers wait for work; with nothing under way at least one, even if others use it."""
        workers, given = self._workers(), {worker for _, worker in self._running.values()}
        mine = {self._function.key}
        self._idle = [worker for worker, tasks in workers.items() if mine.issuperset(tasks) and worker not in given]
        if not self._idle and not self._running:
            self._idle = list(workers)[:1]
        return len(self._idle)

    def is_busy(self) -> bool:
        """Tell whether any piece is under way."""
        return bool(self._running)

    def submit(self, argument: Any) -> None:
        """Give a piece to an idle worker.

        Left to itself the scheduler prefers workers that have the function already, and lets others stand idle.
        """
        worker = self._idle.pop()
        place = {"workers": [worker], "allow_other_workers": True, "pure": False}
        with self._connection():
            self._running[self._client.submit(_run, self._function, argument, **place)] = argument, worker

    def finished(self) -> list[Outcome]:
        """Wait for pieces to end, but not for long, as there may be new workers.

        Pieces of a worker that died are given to others by the scheduler.
        """
        with self._connection(), self._client.as_current(), suppress(TimeoutError):
            self._distributed.wait(list(self._running), timeout=_LOOK_AGAIN, return_when="FIRST_COMPLETED")
        with self._connection():
            return [self._outcome(future) for future in list(self._running) if future.done()]

    def close(self) -> None:
        """Take back what has not begun, and leave; what a worker has begun ends there, and its result is dropped."""
        with suppress(OSError, CancelledError, TimeoutError, RuntimeError):
            self._client.cancel(list(self._running), force=True)
        self._client.close(timeout=2)

    def _outcome(self, future: Any) -> Outcome:
        argument, _ = self._running.pop(future)
        if future.cancelled():
            raise CancelledError
        error = future.exception()
        if error is None:
            return Outcome(argument, future.result())
        if isinstance(error, self._distributed.KilledWorker):
            return Outcome(argument, error=lost(argument, error.allowed_failures + 1))
        return Outcome(argument, error=error.with_traceback(future.traceback()))

    def _connect(self) -> Any:
        _check_address(self._address, self._distributed)
        try:
            # A client that comes to nothing would wait again and print a traceback when it goes; so knock first.
            with ThreadPoolExecutor(1) as other_thread:  # a notebook has a loop in this one
                other_thread.submit(asyncio.run, _knock(self._address, self._distributed)).result()
            return self._distributed.Client(self._address, timeout=SECONDS_TO_ANSWER, set_as_default=False)
        except Exception as error:  # ways to connect have many kinds of their own
            reason = str(error) or f"nothing came back for {SECONDS_TO_ANSWER:.0f} seconds"
            raise ConnectionError(
                f"No dask scheduler answers at {self._address} ({reason}); start one with `dask scheduler`, which"
                " prints its address."
            ) from error

    @contextmanager
    def _connection(self) -> Iterator[None]:
        """Say what has happened when the scheduler goes away."""
        try:
            yield
        except (OSError, CancelledError) as error:
            if isinstance(error, ConnectionError):
                raise
            raise ConnectionError(f"The connection to the dask scheduler at {self._address} is lost.") from error

    def _workers(self) -> dict[str, Any]:
        """Return the addresses of all worker processes, at least one, with their tasks; check those that are new."""
        with self._connection():
            workers = self._client.processing()
            if not workers:
                try:
                    self._client.wait_for_workers(1, timeout=SECONDS_WITHOUT_WORKERS)
                except TimeoutError as error:
                    raise ConnectionError(
                        f"The cluster at {self._address} has had no worker for {SECONDS_WITHOUT_WORKERS:.0f} seconds;"
                        f" start some with `dask worker {self._address}`."
                    ) from error
                workers = self._client.processing()
            if not self._known.issuperset(workers):
                threads = self._client.nthreads()
                self._check({worker: count for worker, count in threads.items() if worker not in self._known})
        return dict(workers)

    def _check(self, threads: dict[str, int]) -> None:
        """Refuse workers that would come to other results; `threads` are those of each."""
        if not threads:
            return
        here = versions()
        for worker, there in self._client.run(versions, workers=list(threads), on_error="return").items():
            if isinstance(there, ImportError):
                raise ImportError(f"Worker {worker} has no lmfcn ({there}); install the same version there as here.")
            if isinstance(there, Exception):
                continue  # gone already
            differences = [
                f"{name} {there[name]} instead of {here[name]}" for name in here if there[name] != here[name]
            ]
            if differences:
                raise ValueError(f"Worker {worker} has {', '.join(differences)}; install the same versions everywhere.")
            self._known.add(worker)
        if max(threads.values()) > 1:
            warnings.warn(
                f"A worker has {max(threads.values())} threads, but gets one piece of work at a time; with"
                " `dask worker --nworkers N --nthreads 1` there are N at a time.",
                UserWarning,
                stacklevel=2,
            )


def _packages() -> tuple[Any, Any]:
    try:
        import dask
        import distributed
    except ImportError as error:
        raise ImportError(f"A cluster needs dask.distributed: pip install 'lmfcn[cluster]' ({error}).") from error
    return dask, distributed


def _check_address(address: str, distributed: Any) -> None:
    """Refuse what cannot be the address of a scheduler before anybody waits for an answer."""
    example = "tcp://10.0.0.1:8786, which `dask scheduler` prints"
    if address.startswith(("http://", "https://")):
        raise ValueError(f"{address} looks like the dashboard's address; give the scheduler's, such as {example}.")
    try:
        host, _ = distributed.comm.get_address_host_port(address)
    except ValueError:
        host = ""
    if not host:
        raise ValueError(f"The address of a dask scheduler must be like {example}, got {address!r}.")


async def _knock(address: str, distributed: Any) -> None:
    """Connect and leave again; whatever happens, it is known in time, also if somebody listens and says nothing."""
    options = distributed.Security().get_connection_args("client")
    async with asyncio.timeout(SECONDS_TO_ANSWER):
        connection = await distributed.comm.connect(address, timeout=SECONDS_TO_ANSWER, **options)
    await connection.close()


def _run(function: Callable[[Any], Any], argument: Any) -> Any:
    return function(argument)
