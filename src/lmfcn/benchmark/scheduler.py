"""Which runs are missing, which of them can begin, and where they are kept."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from lmfcn.benchmark.measure import (
    METHODS,
    ON_TOP_OF_CNN,
    TUNED_FOR_ITSELF,
    Changes,
    candidates_of,
    digest_of,
    is_tuned,
    measure,
)
from lmfcn.benchmark.runs import Cell, Run, RunReader, append_run
from lmfcn.benchmark.tables import NOTHING
from lmfcn.benchmark.tasks import Parts
from lmfcn.compute.parallel import LostWorkerError, as_completed
from lmfcn.compute.resources import WithThreads
from lmfcn.method.history import TrainingError
from lmfcn.util.files import LockFile

TUNING_SEED = 0

Report = Callable[[str], None]
Parter = Callable[[int], Parts]
"""From a seed to the parts of a task."""
GoOn = Callable[[Cell], bool]
"""Told each cell before it is run; False ends the study."""
Ended = Callable[[Cell], None]
"""Told each cell that is over."""


class Work(NamedTuple):
    """A cell with what the file knows for it: the choice that tuning made before, and what is wanted beside it."""

    cell: Cell
    choice: Mapping[str, Any] | None
    beside: Sequence[str]


@dataclass(frozen=True)
class Measuring:
    """What every process gets once: how work becomes runs. Images are read, or drawn, where that happens."""

    tasks: Mapping[str, Parter]
    changes: Changes

    def __call__(self, work: Work) -> tuple[list[Run], Exception | None]:
        """Return the runs of a cell, and the error that ended it if its training failed."""
        runs: list[Run] = []
        try:
            parts = self.tasks[work.cell.task](work.cell.seed)
            for run in measure(work.cell, parts, work.choice, self.changes, work.beside):
                runs.append(run)
        except TrainingError as error:
            return runs, error
        return runs, None


@dataclass(frozen=True)
class Study:
    """Methods on tasks with seeds, and the file that keeps their runs.

    Every run computes with the same number of threads wherever it is done, as bits depend on it; so results do not
    depend on `jobs`, nor on the machines of a cluster as far as their processors are alike.

    Attributes
    ----------
    tasks : mapping of functions
        From a seed to the parts of a task, by the task's name; picklable for other processes.
    methods : sequence of str
        Names in `METHODS`.
    seeds : sequence of int
        Each is a new division with new weights; the tuning seed is run first.
    output : Path
        Only this process writes it.
    changes : mapping of mappings
        What differs from the defaults of each method.
    beside : collection of str
        Methods on top of "CNN-CE" that are measured with it, whether they are among `methods` or not.
    tuning_seed : int or None
        The seed that chooses the parameters of all; with None nothing is tuned.
    tuned_on : mapping of str
        Tasks that take over what was chosen on another one, and that one.
    by_repeat : bool
        Whether all methods begin with one seed before the next one's turn, instead of each with all seeds.
    data : mapping of str
        What the images of a task are known by; runs on other images do not count as done.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler whose workers do the runs.
    threads : int
        Threads of every run.
    labels : mapping of str
        What methods are called in reports and failures, where that is not their name.
    """

    tasks: Mapping[str, Parter]
    methods: Sequence[str]
    seeds: Sequence[int]
    output: Path
    changes: Changes
    beside: Collection[str] = ON_TOP_OF_CNN
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
        go_on: GoOn = lambda _: True,
        ended: Ended = lambda _: None,
        failed: Report | None = None,
    ) -> list[str]:
        """Run every cell that is not in the file; report each, and return a sentence for each that failed.

        A failed cell is not written down, so that it is tried again the next time. `go_on` is told each cell before it
        is run, and ends the study by returning False; `ended` is told each that is over, and `failed` the sentences
        about failures, which else go to `report`.
        """
        self._check_choices()
        self.output.parent.mkdir(parents=True, exist_ok=True)
        # Two processes that add to the same file would do the same work.
        busy = f"Another process is adding runs to {self.output}; wait until it has ended, or give another --output."
        with LockFile(self.output, busy):
            return self._run(report, go_on, ended, failed or report)

    def _run(self, report: Report, go_on: GoOn, ended: Ended, failed: Report) -> list[str]:
        failures: list[str] = []

        def fail(cell: Cell, reason: Exception) -> None:
            failures.append(f"{cell.task}, {self.label_of(cell)}, seed {cell.seed}: {reason}")
            failed(f"{failures[-1]} Going on with the next.")

        running: list[Cell] = []
        function = WithThreads(Measuring(self.tasks, self.changes), self.threads)
        works = self._work(running, go_on, fail)
        for work, result in as_completed(
            function, works, jobs=self.jobs, scheduler=self.scheduler, catch=LostWorkerError
        ):
            running.remove(work.cell)
            ended(work.cell)
            runs, error = ([], result) if isinstance(result, LostWorkerError) else result
            for run in runs:
                append_run(self.output, replace(run, digest=self.digest(run.cell)))
                report(_in_a_line(run, self.label_of(run.cell)))
            if error is not None:
                fail(work.cell, error)
        return failures

    def cells(self) -> Iterator[Cell]:
        """Yield all cells, for each method and task the one that tunes before the others."""
        seeds = sorted(self.seeds, key=lambda seed: seed != self.tuning_seed)
        if self.by_repeat:
            return (Cell(task, method, seed) for seed in seeds for task in self.tasks for method in self.methods)
        return (Cell(task, method, seed) for method in self.methods for task in self.tasks for seed in seeds)

    def finished(self) -> dict[Cell, Run]:
        """Return the runs of the file that need not be repeated, the last one of each cell.

        A run counts if it was asked for with the same parameters on the same data; older lines, which tell nothing of
        that, always count.
        """
        mine = (run for run in self._reader.read() if run.task in {*self.tasks, *self.tuned_on.values()})
        return {run.cell: run for run in mine if run.digest in (None, self.digest(run.cell))}

    def label_of(self, cell: Cell) -> str:
        """Return what the method of a cell is called in reports."""
        return self.labels.get(cell.method, cell.method)

    def digest(self, cell: Cell) -> str | None:
        """Return a text that changes with the parameters of a method and the data of a task, but not with the seed."""
        key = cell.task, cell.method
        if key not in self._digests and cell.method in METHODS:
            tuned = self.tuning_seed is not None and is_tuned(cell.method)
            told = [candidates_of(cell.method, self.changes), self._tuning(cell).task] if tuned else False
            self._digests[key] = digest_of(cell.method, self.changes, [self.data.get(cell.task), told])
        return self._digests.get(key)

    @cached_property
    def _reader(self) -> RunReader:
        """What remembers the lines of the file that are known, as `finished` is asked before every run."""
        return RunReader(self.output)

    @cached_property
    def _digests(self) -> dict[tuple[str, str], str]:
        """What `digest` has computed, as it is asked for every line of the file before every run."""
        return {}

    def _work(self, running: list[Cell], go_on: GoOn, fail: Callable[[Cell, Exception], None]) -> Iterator[Work | None]:
        """Yield what can begin now, and None while everything that is left waits for what is `running`."""
        waiting = list(self.cells())
        while waiting:
            runs = self.finished()  # again every time, as another process may have added some
            waiting = [cell for cell in waiting if cell not in runs]
            cell = next((cell for cell in waiting if not self._waits(cell, running, waiting)), None)
            if cell is None:
                if waiting:
                    yield None
                continue
            if not go_on(cell):
                return
            waiting.remove(cell)
            try:
                choice = self._choice(cell, runs)
            except TrainingError as error:
                fail(cell, error)
                continue
            beside = [method for method in self.beside if cell._replace(method=method) not in runs]
            running.append(cell)
            yield Work(cell, choice, beside)

    def _waits(self, cell: Cell, running: Sequence[Cell], waiting: Sequence[Cell]) -> bool:
        """Tell whether a cell needs what another one will leave in the file."""
        tuning = self._tuning(cell)
        if tuning != cell and is_tuned(cell.method) and (tuning in running or tuning in waiting):
            return True
        # These measure, or leave out, each other.
        relatives = ["CNN-CE"] if cell.method in self.beside else self.beside if cell.method == "CNN-CE" else []
        before = [*running, *waiting[: waiting.index(cell)]]
        return any(cell._replace(method=method) in before for method in relatives)

    def _choice(self, cell: Cell, runs: Mapping[Cell, Run]) -> Mapping[str, Any] | None:
        """Return what the tuning seed chose, or None where the choice is to be made."""
        if self.tuning_seed is None:
            return {}
        if self._tuning(cell) == cell or not is_tuned(cell.method):
            return None
        tuning = runs.get(self._tuning(cell))
        if tuning is None:
            raise TrainingError(f"{_which(self._tuning(cell))} has left no choice of parameters.")
        return tuning.chosen

    def _tuning(self, cell: Cell) -> Cell:
        """Return the cell that chooses the parameters for this one, perhaps itself."""
        if self.tuning_seed is None:
            return cell
        shared = {} if cell.method in TUNED_FOR_ITSELF else self.tuned_on
        return cell._replace(task=shared.get(cell.task, cell.task), seed=self.tuning_seed)

    def _check_choices(self) -> None:
        """Refuse to start what would lack a choice of parameters hours later."""
        cells, runs = list(self.cells()), self.finished()
        for cell in cells:
            tuning = self._tuning(cell)
            if cell not in runs and is_tuned(cell.method) and tuning not in cells and tuning not in runs:
                raise ValueError(
                    f"{_which(tuning)} chooses the parameters of {cell.method} on {cell.task}, but is not in"
                    f" {self.output}; add it to what is run."
                )


def _which(cell: Cell) -> str:
    return f"Seed {cell.seed} of {cell.task}"


def _in_a_line(run: Run, label: str) -> str:
    held_out = run.validation_balanced_accuracy
    validation = NOTHING if held_out is None else f"{held_out:.3f}"
    epochs = "" if run.epochs is None else f", {run.epochs} epochs"
    scores = f"test {run.test_balanced_accuracy:.3f}, validation {validation}"
    return f"{run.task:10s} {label:27s} seed {run.seed} | {scores}{epochs}, {run.cpu_seconds:.0f} s"
