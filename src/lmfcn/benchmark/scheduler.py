"""Schedule the runs of a study: find the missing ones, start those that can start, write the results."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from lmfcn.benchmark.measure import (
    METHODS,
    ON_TOP_OF_CNN,
    TUNED_PER_TASK,
    Changes,
    candidates_of,
    digest_of,
    is_tuned,
    measure,
)
from lmfcn.benchmark.runs import Run, RunKey, RunReader, append_run, former_parameters
from lmfcn.benchmark.tables import NOTHING
from lmfcn.benchmark.tasks import SplitData
from lmfcn.compute.parallel import LostWorkerError, as_completed
from lmfcn.compute.resources import WithThreads
from lmfcn.method.history import TrainingError
from lmfcn.util.files import LockFile

TUNING_SEED = 0

Report = Callable[[str], None]
SplitMaker = Callable[[int], SplitData]
"""Function of a seed that returns the split data of a task."""
MayStart = Callable[[RunKey], bool]
"""Called before each run; returning False ends the study."""
OnEnd = Callable[[RunKey], None]
"""Called after each run."""


class PlannedRun(NamedTuple):
    """A run that can start: its key, tuned parameters if there are any, and methods to measure with "CNN-CE"."""

    key: RunKey
    choice: Mapping[str, Any] | None
    on_top_of_cnn: Sequence[str]


@dataclass(frozen=True)
class MeasureRuns:
    """Function of a planned run that measures it. Every process gets it once and reads or draws the images itself."""

    tasks: Mapping[str, SplitMaker]
    changes: Changes

    def __call__(self, planned: PlannedRun) -> tuple[list[Run], Exception | None]:
        """Measure the run of a key; return all its runs, and the error if its training failed."""
        runs: list[Run] = []
        try:
            data = self.tasks[planned.key.task](planned.key.seed)
            for run in measure(planned.key, data, planned.choice, self.changes, planned.on_top_of_cnn):
                runs.append(run)
        except TrainingError as error:
            return runs, error
        return runs, None


@dataclass(frozen=True)
class Study:
    """Runs of methods on tasks with several seeds, and the file that holds them.

    Every run uses the same number of threads, because the last bits of results depend on it. So results do not depend
    on `jobs`, nor on the machine of a cluster if the processors are of the same kind.

    Attributes
    ----------
    tasks : mapping of functions
        For each task, a function of a seed that returns the split data; picklable for other processes.
    methods : sequence of str
        Names in `METHODS`.
    seeds : sequence of int
        Each is a new split with new initial weights; the tuning seed runs first.
    output : Path
        File of runs; only this process writes to it.
    changes : mapping of mappings
        Parameters that differ from the defaults, by method.
    on_top_of_cnn : collection of str
        Methods that are measured with "CNN-CE" on its network, whether they are among `methods` or not.
    tuning_seed : int or None
        The seed whose run tunes the parameters for all seeds; with None nothing is tuned.
    tuned_on : mapping of str
        Tasks that use the parameters tuned on another task, and that task.
    by_repeat : bool
        Whether one seed is run with all methods before the next seed, instead of one method with all seeds.
    data : mapping of str
        Digests of the images, by task; runs on other images are repeated.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler; its workers then do the runs.
    threads : int
        Threads of every run.
    labels : mapping of str
        Names of methods in printed lines, where they differ.
    """

    tasks: Mapping[str, SplitMaker]
    methods: Sequence[str]
    seeds: Sequence[int]
    output: Path
    changes: Changes
    on_top_of_cnn: Collection[str] = ON_TOP_OF_CNN
    tuning_seed: int | None = TUNING_SEED
    tuned_on: Mapping[str, str] = field(default_factory=dict)
    by_repeat: bool = False
    data: Mapping[str, str] = field(default_factory=dict)
    jobs: int = 1
    scheduler: str | None = None
    threads: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        report: Report,
        may_start: MayStart = lambda _: True,
        on_end: OnEnd = lambda _: None,
        report_failure: Report | None = None,
    ) -> list[str]:
        """Measure every run that is not in the file; return a sentence for each failure.

        A failed run is not written to the file, so that the next call tries it again.

        Parameters
        ----------
        report : callable
            Gets a line about every finished run.
        may_start : callable
            Gets the key of a run before it starts; the study ends when it returns False.
        on_end : callable
            Gets the key of every run that has ended.
        report_failure : callable, optional
            Gets the sentences about failures; `report` by default.
        """
        self._check_tuning_runs()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        # Two processes that add to the same file would do the same work.
        busy = f"Another process is adding runs to {self.output}; wait until it has ended, or give another --output."
        with LockFile(self.output, busy):
            return self._run(report, may_start, on_end, report_failure or report)

    def _run(self, report: Report, may_start: MayStart, on_end: OnEnd, report_failure: Report) -> list[str]:
        failures: list[str] = []

        def fail(key: RunKey, reason: Exception) -> None:
            failures.append(f"{key.task}, {self.label_of(key)}, seed {key.seed}: {reason}")
            report_failure(f"{failures[-1]} Going on with the next.")

        running: list[RunKey] = []
        function = WithThreads(MeasureRuns(self.tasks, self.changes), self.threads)
        all_planned = self._plan(running, may_start, fail)
        for planned, result in as_completed(
            function, all_planned, jobs=self.jobs, scheduler=self.scheduler, catch=LostWorkerError
        ):
            running.remove(planned.key)
            on_end(planned.key)
            runs, error = ([], result) if isinstance(result, LostWorkerError) else result
            for run in runs:
                append_run(self.output, replace(run, digest=self.digest(run.key)))
                report(_result_line(run, self.label_of(run.key)))
            if error is not None:
                fail(planned.key, error)
        return failures

    def keys(self) -> Iterator[RunKey]:
        """Yield the keys of all runs; for each method and task the tuning seed comes first."""
        seeds = sorted(self.seeds, key=lambda seed: seed != self.tuning_seed)
        if self.by_repeat:
            return (RunKey(task, method, seed) for seed in seeds for task in self.tasks for method in self.methods)
        return (RunKey(task, method, seed) for method in self.methods for task in self.tasks for seed in seeds)

    def finished(self) -> dict[RunKey, Run]:
        """Return the runs of the file that need not be repeated, the last one of each key.

        These are the runs with the same requested parameters and the same data, and older lines without a digest.
        """
        of_tasks = (run for run in self._reader.read() if run.task in {*self.tasks, *self.tuned_on.values()})
        return {run.key: run for run in of_tasks if run.digest in (None, self.digest(run.key))}

    def label_of(self, key: RunKey) -> str:
        """Return the name of a key's method in printed lines."""
        return self.labels.get(key.method, key.method)

    def digest(self, key: RunKey) -> str | None:
        """Return a digest of the parameters of a method and the data of a task; it does not depend on the seed."""
        entry = key.task, key.method
        if entry not in self._digests and key.method in METHODS:
            tuned = self.tuning_seed is not None and is_tuned(key.method)
            candidates = [former_parameters(one) for one in candidates_of(key.method, self.changes)] if tuned else []
            tuning = [candidates, self._tuning_key(key).task] if tuned else False
            self._digests[entry] = digest_of(key.method, self.changes, [self.data.get(key.task), tuning])
        return self._digests.get(entry)

    @cached_property
    def _reader(self) -> RunReader:
        """Reader that remembers parsed lines, as `finished` is called before every run."""
        return RunReader(self.output)

    @cached_property
    def _digests(self) -> dict[tuple[str, str], str]:
        """Cache of `digest`, which is called for every line of the file before every run."""
        return {}

    def _plan(
        self, running: list[RunKey], may_start: MayStart, fail: Callable[[RunKey, Exception], None]
    ) -> Iterator[PlannedRun | None]:
        """Yield runs that can start now, and None while all that are left must wait for those in `running`."""
        waiting = list(self.keys())
        while waiting:
            runs = self.finished()  # again every time, as another process may have added some
            waiting = [key for key in waiting if key not in runs]
            key = next((key for key in waiting if not self._must_wait(key, running, waiting)), None)
            if key is None:
                if waiting:
                    yield None
                continue
            if not may_start(key):
                return
            waiting.remove(key)
            try:
                choice = self._tuned_parameters(key, runs)
            except TrainingError as error:
                fail(key, error)
                continue
            on_top_of_cnn = [method for method in self.on_top_of_cnn if key._replace(method=method) not in runs]
            running.append(key)
            yield PlannedRun(key, choice, on_top_of_cnn)

    def _must_wait(self, key: RunKey, running: Sequence[RunKey], waiting: Sequence[RunKey]) -> bool:
        """Tell whether a run needs the result of another one that is not finished."""
        tuning = self._tuning_key(key)
        if tuning != key and is_tuned(key.method) and (tuning in running or tuning in waiting):
            return True
        # "CNN-CE" also measures the methods on its network, unless they are finished: only one of them may run.
        related: Collection[str] = []
        if key.method in self.on_top_of_cnn:
            related = ["CNN-CE"]
        elif key.method == "CNN-CE":
            related = self.on_top_of_cnn
        before = [*running, *waiting[: waiting.index(key)]]
        return any(key._replace(method=method) in before for method in related)

    def _tuned_parameters(self, key: RunKey, runs: Mapping[RunKey, Run]) -> Mapping[str, Any] | None:
        """Return the parameters that the tuning run chose, or None if this run is to tune them."""
        if self.tuning_seed is None:
            return {}
        if self._tuning_key(key) == key or not is_tuned(key.method):
            return None
        tuning = runs.get(self._tuning_key(key))
        if tuning is None:
            raise TrainingError(f"{_seed_and_task(self._tuning_key(key))} has left no choice of parameters.")
        return tuning.chosen

    def _tuning_key(self, key: RunKey) -> RunKey:
        """Return the key of the run that tunes the parameters of this one, which may be itself."""
        if self.tuning_seed is None:
            return key
        shared = {} if key.method in TUNED_PER_TASK else self.tuned_on
        return key._replace(task=shared.get(key.task, key.task), seed=self.tuning_seed)

    def _check_tuning_runs(self) -> None:
        """Raise ValueError before anything runs if the run that tunes another one is neither planned nor finished."""
        keys, runs = list(self.keys()), self.finished()
        for key in keys:
            tuning = self._tuning_key(key)
            if key not in runs and is_tuned(key.method) and tuning not in keys and tuning not in runs:
                raise ValueError(
                    f"{_seed_and_task(tuning)} chooses the parameters of {key.method} on {key.task}, but is not in"
                    f" {self.output}; add it to what is run."
                )


def _seed_and_task(key: RunKey) -> str:
    return f"Seed {key.seed} of {key.task}"


def _result_line(run: Run, label: str) -> str:
    held_out = run.validation_balanced_accuracy
    validation = NOTHING if held_out is None else f"{held_out:.3f}"
    epochs = "" if run.epochs is None else f", {run.epochs} epochs"
    scores = f"test {run.test_balanced_accuracy:.3f}, validation {validation}"
    return f"{run.task:10s} {label:27s} seed {run.seed} | {scores}{epochs}, {run.cpu_seconds:.0f} s"
