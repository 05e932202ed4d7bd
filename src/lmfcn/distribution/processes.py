"""Work in several processes on this machine."""

import pickle
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from lmfcn.distribution.pool import Outcome, lost, pack

N_TRIES = 3
_LARGE = 2**20
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Processes:
    """Single processes side by side: one that dies takes no other with it.

    Parameters
    ----------
    function : callable
        Written once to a temporary folder; large arrays in it are mapped into memory, which the processes share.
    jobs : int
        Number of processes.
    """

    def __init__(self, function: Callable[[Any], Any], jobs: int) -> None:
        self._share = max(1, joblib.cpu_count() // jobs)
        self._folder = Path(tempfile.mkdtemp(prefix="lmfcn-"))
        self._free: list[Any] = [None] * jobs  # started when they get their first piece
        self._running: dict[Future[Any], tuple[Any, Any, int]] = {}
        try:
            _write(function, self._folder)
        except BaseException:
            self.close()
            raise
        # One that has grown, as by decoded images, is replaced between two pieces; there is nothing to tell.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)

    def n_free(self) -> int:
        """Return how many processes wait for work."""
        return len(self._free)

    def is_busy(self) -> bool:
        """Tell whether any process works."""
        return bool(self._running)

    def submit(self, argument: Any) -> None:
        """Give a piece to a free process."""
        self._begin(self._free.pop(), argument, 1)

    def finished(self) -> list[Outcome]:
        """Wait for at least one process to end its piece."""
        outcomes: list[Outcome] = []
        while not outcomes:
            for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                process, argument, n_tries = self._running.pop(future)
                error = future.exception()
                if isinstance(error, TerminatedWorkerError):
                    process.shutdown()
                    if n_tries < N_TRIES:
                        self._begin(None, argument, n_tries + 1)
                        continue
                    process, error = None, lost(argument, n_tries)
                self._free.append(process)
                outcomes.append(_outcome(future, argument, error))
        return outcomes

    def close(self) -> None:
        """End all processes, whatever they do."""
        for process in [*self._free, *(process for process, *_ in self._running.values())]:
            if process is not None:
                process.shutdown(kill_workers=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self, process: Any, argument: Any, n_tries: int) -> None:
        if process is None:
            environment = {name: str(self._share) for name in _THREADS}
            process = ProcessPoolExecutor(max_workers=1, initializer=_leave_interrupts_to_the_parent, env=environment)
        self._running[process.submit(_run, str(self._folder), argument)] = process, argument, n_tries


def _outcome(future: Future[Any], argument: Any, error: BaseException | None) -> Outcome:
    if error is None:
        return Outcome(argument, future.result())
    if not isinstance(error, Exception):
        raise error
    return Outcome(argument, error=error)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(folder: str, argument: Any) -> Any:
    with joblib.parallel_config(backend="sequential"):
        return _read(Path(folder))(argument)


def _write(function: Callable[[Any], Any], folder: Path) -> None:
    arrays: list[pickle.PickleBuffer] = []

    def keep(array: pickle.PickleBuffer) -> bool:
        large = array.raw().nbytes >= _LARGE
        arrays.extend([array] if large else [])
        return not large

    content = pack(function, keep)
    for number, array in enumerate(arrays):
        with (folder / f"{number}.array").open("wb") as file:
            file.write(array.raw())
    (folder / "function.pickle").write_bytes(content)


@cache
def _read(folder: Path) -> Callable[[Any], Any]:
    """Return the function that the parent has written; arrays are read-only views of its files."""
    paths = sorted(folder.glob("*.array"), key=lambda path: int(path.stem))
    arrays = [np.memmap(path, mode="r") for path in paths]
    return pickle.loads((folder / "function.pickle").read_bytes(), buffers=arrays)
