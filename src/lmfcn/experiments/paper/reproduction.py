"""The paper's tables measured again: what is to run, what cannot, and what is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lmfcn.experiments.paper.profiles import Profile, changes_of
from lmfcn.experiments.paper.rows import Row
from lmfcn.experiments.runs import Cell, Run
from lmfcn.experiments.selection import CHEAP_FIRST
from lmfcn.experiments.studies import GoOn, Parter, Report, Study


@dataclass(frozen=True)
class Reproduction:
    """Rows of the paper's tables, and the studies that measure them.

    Attributes
    ----------
    rows : sequence of Row
        All rows of the tables that were asked for, whether they can be measured or not.
    profile : Profile
    seeds : range
        One for each repetition.
    output : Path
        File of runs, one line of JSON each.
    tasks : mapping of functions
        From a seed to the three parts, by the name of the paper's set and whether it has more than two classes.
    data : mapping of str
        What the images are known by, under the same names.
    missing : mapping of str
        Why a set of images has no runs, by its name.
    left_out : mapping of str
        Why rows of a label have no runs.
    weights : mapping of paths
        Files for pretrained networks, by method.
    remarks : sequence of str
        What a reader should know about the images.
    jobs, scheduler
        As in `Study`.
    leaks : mapping of str
        Whether images that belong together are on two sides of a division, under the names of `tasks`.
    """

    rows: Sequence[Row]
    profile: Profile
    seeds: range
    output: Path
    tasks: Mapping[tuple[str, bool], Parter]
    data: Mapping[tuple[str, bool], str]
    missing: Mapping[str, str]
    left_out: Mapping[str, str]
    weights: Mapping[str, Path]
    remarks: Sequence[str] = ()
    jobs: int = 1
    scheduler: str | None = None
    leaks: Mapping[tuple[str, bool], str] = field(default_factory=dict)

    @property
    def tables(self) -> list[int]:
        """The numbers of the paper's tables that were asked for."""
        return sorted({row.printed.table for row in self.rows})

    @property
    def measurable(self) -> list[Row]:
        """The rows whose images are there and whose method can run."""
        return [row for row in self.rows if self.obstacle(row) is None]

    @property
    def cells(self) -> list[Cell]:
        """All runs that there will be in the end, each once."""
        return list(dict.fromkeys(row.cell(seed) for row in self.measurable for seed in self.seeds))

    def obstacle(self, row: Row) -> str | None:
        """Return why a row cannot be measured, or None if it can."""
        return self.missing.get(row.printed.images, self.left_out.get(row.label))

    @property
    def notes(self) -> list[str]:
        """What is to be known before anything runs."""
        images = {row.printed.images for row in self.rows}
        labels = {row.label for row in self.rows}
        return [
            *filter(None, [self.profile.warning]),
            *(f"{name} is missing: {reason}." for name, reason in self.missing.items() if name in images),
            *(f"{name} is not run: {reason.rstrip('.')}." for name, reason in self.left_out.items() if name in labels),
            *self.remarks,
        ]

    def run(self, report: Report, go_on: GoOn = lambda _: True) -> list[str]:
        """Measure what is not in the file yet; return a sentence for each training that failed."""
        failures = []
        for study in self.studies():
            failures += study.run(report, go_on)
        return failures

    def runs(self) -> dict[Cell, Run]:
        """Return the runs that are in the file and were asked for with the same parameters on the same images."""
        wanted = set(self.cells)
        found = (pair for study in self.studies() for pair in study.finished().items())
        return {cell: run for cell, run in found if cell in wanted}

    @property
    def leak_check(self) -> dict[str, str]:
        """Whether images that belong together are on two sides of a division, by the names of `Task.division`."""
        names = {(row.task.images, row.task.many): row.task.division for row in self.measurable}
        return {names[images]: sentence for images, sentence in self.leaks.items() if images in names}

    def printed_runs(self) -> list[Run]:
        """Return the runs that are there in the order of the tables, each once and under the names of its row.

        The method is the row's label, and all dimensions of the same images and divisions are one task.
        """
        found = self.runs()
        names = {row.cell(seed): (row.task.division, row.label) for row in self.rows for seed in self.seeds}
        return [replace(found[cell], task=task, method=label) for cell, (task, label) in names.items() if cell in found]

    def studies(self) -> list[Study]:
        """Return one study for all tasks whose methods have the same parameters."""
        settings = dict.fromkeys((row.task.latent_dim, row.task.many) for row in self.measurable)
        return [self._study(latent_dim, many=many) for latent_dim, many in settings]

    def label_of(self, cell: Cell) -> str:
        """Return the label of the rows that a run stands in."""
        return next(row.label for row in self.rows if row.cell(cell.seed) == cell)

    def _study(self, latent_dim: int, *, many: bool) -> Study:
        rows = [row for row in self.measurable if (row.task.latent_dim, row.task.many) == (latent_dim, many)]
        tasks = {row.task.name: (row.task.images, many) for row in rows}
        return Study(
            {name: self.tasks[images] for name, images in tasks.items()},
            sorted({row.method for row in rows}, key=CHEAP_FIRST.index),
            self.seeds,
            self.output,
            changes_of(self.profile, latent_dim, self.weights, many=many),
            beside=(),
            tuning_seed=None,
            data={name: self.data[images] for name, images in tasks.items()},
            jobs=self.jobs,
            scheduler=self.scheduler,
            labels={row.method: row.label for row in rows},
        )
