"""A dask scheduler and its workers as processes of this machine, for tests."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent
LOOPBACK = ("--host", "127.0.0.1", "--no-dashboard")


class RunningCluster:
    """Started without workers; `grow_to` starts them, and leaving the `with` block ends all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen] = []

    def __enter__(self) -> "RunningCluster":
        file = self.folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(file))
        try:
            self.address = json.loads(self._content(file))["address"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait(timeout=60)

    def grow_to(self, n_workers: int) -> str:
        """Start workers until so many are alive, wait for them, and return the scheduler's address."""
        from distributed import Client

        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < n_workers:
            self.workers.append(self._start("worker", self.address, "--nthreads", "1", "--no-nanny"))
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(n_workers, timeout=60)
        return self.address

    def shrink(self) -> None:
        """End all workers, and wait until the scheduler knows."""
        from distributed import Client

        for worker in self.workers:
            worker.kill()
        with Client(self.address, set_as_default=False) as client:
            while client.nthreads():
                time.sleep(0.1)

    def kill(self, process_id: int) -> None:
        """Kill one of the workers without warning."""
        next(worker for worker in self.workers if worker.pid == process_id).kill()

    def _start(self, what: str, *arguments: str) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
        with (self.folder / f"{what}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments, *LOOPBACK],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def _content(self, file: Path) -> str:
        for _ in range(600):
            if file.exists() and file.read_text().rstrip().endswith("}"):
                return file.read_text()
            if self.scheduler.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"The scheduler did not start: {(self.folder / 'scheduler.log').read_text()}")
