"""All methods that can run, on repeated divisions of the user's own images."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.exhibit import Exhibit, exhibit_path, read_exhibit
from lmfcn.experiments.measuring import ON_TOP_OF_CNN, Changes
from lmfcn.experiments.own_data import DataSummary, parts_of
from lmfcn.experiments.runs import Run, read_runs
from lmfcn.experiments.shared import complete_repeats, shared_runs
from lmfcn.experiments.studies import Ended, GoOn, Report, Study
from lmfcn.experiments.tasks import Parts
from lmfcn.experiments.verdict import Verdict, judge
from lmfcn.tensor_files import FileError


@dataclass(frozen=True)
class Comparison:
    """Methods on repeated divisions of one collection.

    Attributes
    ----------
    name : str
        Of the collection, as runs and tables call it.
    images : ImageCollection
        With labels, and groups if there are any.
    data : DataSummary
    methods : sequence of str
        Those that can run, and in `left_out` why others cannot, by their names.
    seeds : sequence of int
        One for each repeat; the first one chooses the parameters.
    output : Path
        File of runs, one line of JSON each.
    changes : mapping of mappings
        What differs from the defaults of each method.
    quick : bool
        Whether these changes are for a first look, which tables and report then say.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler whose workers do the runs.
    """

    name: str
    images: ImageCollection
    data: DataSummary
    methods: Sequence[str]
    left_out: Mapping[str, str]
    seeds: Sequence[int]
    output: Path
    changes: Changes
    quick: bool = False
    jobs: int = 1
    scheduler: str | None = None

    def run(
        self,
        report: Report,
        go_on: GoOn = lambda _: True,
        ended: Ended = lambda _: None,
        failed: Report | None = None,
    ) -> list[str]:
        """Measure what is not in the file yet, repeat by repeat; return a sentence for each training that failed.

        The arguments are those of `Study.run`.
        """
        self._check_same_data()
        return self._study.run(report, go_on, ended, failed)

    def runs(self) -> list[Run]:
        """Return the runs of these methods and repeats that are in the file and were asked for as they are now."""
        found = self._study.finished().values()
        return [run for run in found if run.method in self.methods and run.seed in self.seeds]

    @cached_property
    def _study(self) -> Study:
        return Study(
            {self.name: partial(_exhibited_parts, self.images, self.seeds[0])},
            self.methods,
            self.seeds,
            self.output,
            self.changes,
            beside=[method for method in ON_TOP_OF_CNN if method in self.methods],
            tuning_seed=self.seeds[0],
            by_repeat=True,
            jobs=self.jobs,
            scheduler=self.scheduler,
        )

    def _check_same_data(self) -> None:
        runs = list(read_runs(self.output).values())
        others = sorted({run.task for run in runs} - {self.name})
        if others:
            raise ValueError(f"{self.output} holds runs of {others[0]!r}, not of {self.name!r}; give another --output.")
        # Every image is in every division, so one of them tells whether all images and labels are the same.
        if runs and runs[0].split != parts_of(self.images, runs[0].seed).fingerprint():
            raise ValueError(
                f"{self.output} holds runs of other images, labels, groups or sizes than {self.name!r} has now; give"
                " another --output, or the data as they were."
            )


@dataclass(frozen=True)
class Outcome:
    """What a comparison brought, for those who write it down.

    Attributes
    ----------
    comparison : Comparison
    runs : list of Run
        All of them; `shared` are those that the verdict is about.
    failures : list of str
        A sentence for each training that failed.
    command : str
        What to type to run it again, or to go on.
    """

    comparison: Comparison
    runs: list[Run]
    failures: Sequence[str]
    command: str

    @cached_property
    def shared(self) -> list[Run]:
        """The runs that the verdict is about, every method in it with the same repeats; none if no two share one."""
        return shared_runs(self.runs, self.comparison.methods)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the shared runs, preliminary if some methods are not among them."""
        return judge(self.shared, waiting=self.waiting, n_asked=len(self.comparison.seeds))

    @property
    def exhibit(self) -> tuple[Run, Exhibit] | None:
        """What there is to show of LMFCN at work, and the run it is of: that of the best method which has one."""
        for method in (self.verdict.winner, *(rival.method for rival in self.verdict.rivals)):
            for run in self.runs:
                if run.cell[1:] == (method, self.comparison.seeds[0]):
                    found = self._exhibit_of(run)
                    if found is not None:
                        return run, found
        return None

    def _exhibit_of(self, run: Run) -> Exhibit | None:
        try:
            return read_exhibit(exhibit_path(self.comparison.output, run.method), run.origin)
        except (FileError, OSError) as error:
            # Pictures are not worth a report that is not written.
            warnings.warn(f"Left out of the report: {error}", UserWarning, stacklevel=2)
            return None

    @property
    def waiting(self) -> list[str]:
        """Methods that could run but lack repeats that those in the verdict have."""
        judged = {run.method for run in self.shared}
        return [method for method in self.comparison.methods if method not in judged]

    @property
    def remarks(self) -> list[str]:
        """What a reader of the verdict should know beside it."""
        remarks = [f"{method} is left out: {reason}" for method, reason in self.comparison.left_out.items()]
        if self.comparison.quick:
            remarks.append(
                "This was a quick look: few epochs, small images. Without --quick the methods can do better."
            )
        remarks += [f"A training failed: {failure}" for failure in self.failures]
        remarks += self._unfinished
        if self.comparison.data.found.groups_per_class is None:
            remarks.append(
                "The images have no groups. If several come from one patient, slide or sheet, a column 'group' in a"
                " table keeps them on one side; without it all test accuracies are too good."
            )
        return remarks

    @property
    def _unfinished(self) -> list[str]:
        n_asked, n_complete = len(self.comparison.seeds), len(complete_repeats(self.runs, self.comparison.methods))
        if n_complete == n_asked:
            return []
        complete = f"Complete repeats: {n_complete} of {n_asked}"
        if not self.waiting:
            return [f"{complete}, and only those count here. The same command goes on."]
        counts = Counter(run.method for run in self.runs)
        lacking = "; ".join(f"{method} has {counts[method]}" for method in self.waiting)
        return [f"{complete}. Not in the verdict: {lacking}. The same command goes on."]


def _exhibited_parts(images: ImageCollection, exhibited: int, seed: int) -> Parts:
    """Return the parts of a seed; of one seed the fitted model shall be exhibited."""
    return replace(parts_of(images, seed), exhibited=seed == exhibited)
