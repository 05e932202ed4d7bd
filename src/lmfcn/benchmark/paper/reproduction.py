"""`lmfcn reproduce`: what was asked for, what can run, what is missing, what is there."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lmfcn.baselines import check_requirements
from lmfcn.benchmark.measure import CHEAP_FIRST, METHODS, NEED_WEIGHTS, WEIGHT_OPTIONS
from lmfcn.benchmark.paper.image_sets import (
    GAUSSIAN,
    GROUPS,
    OPTIONS,
    Source,
    check_source,
    digest_of_source,
    leak_sentence,
    published_parts,
)
from lmfcn.benchmark.paper.printed_tables import METHOD_OF, Row, check_rows_left, chosen_labels, rows_of
from lmfcn.benchmark.paper.profiles import LATENT_DIM, PROFILES, Profile, changes_of
from lmfcn.benchmark.runs import Cell, Run
from lmfcn.benchmark.scheduler import GoOn, Parter, Report, Study
from lmfcn.benchmark.tasks import gaussians
from lmfcn.util.checks import check_choice


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


TABLES = {"table2": 2, "table3": 3, "table4": 4}
FIGURES = ("figure1", "figure3")
EVERYTHING = (*TABLES, *FIGURES)
IGNORED_GROUPS = "Patients, slides and textures are divided (--ignore-groups): test accuracies are too good."
DEFAULT_OUTPUT = Path("reproduction")


@dataclass(frozen=True)
class Request:
    """The options of `lmfcn reproduce`.

    Attributes
    ----------
    what : sequence of str
        Names in `EVERYTHING`, or "all".
    output : Path
        Folder for everything that is written.
    profile : "full" or "quick"
    roots : mapping of paths
        Folders of the published sets, by the paper's names.
    weights : mapping of paths
        Files for pretrained networks, by method.
    size : int or None
        Side of the images in pixels; None leaves it to the profile, as with `repeats`.
    repeats : int or None
    only : sequence of str
        Rows to measure, by their labels or labels joined by commas; all if there are none.
    by_image : bool
        Whether to divide images of one patient, slide or texture.
    jobs : int
    scheduler : str or None
        As in `Study`.
    """

    what: Sequence[str] = ("all",)
    output: Path = DEFAULT_OUTPUT
    profile: str = "full"
    roots: Mapping[str, Path] = field(default_factory=dict)
    weights: Mapping[str, Path] = field(default_factory=dict)
    size: int | None = None
    repeats: int | None = None
    only: Sequence[str] = ()
    by_image: bool = False
    jobs: int = 1
    scheduler: str | None = None

    @property
    def wanted(self) -> list[str]:
        """The tables and figures that were asked for, in the paper's order."""
        for name in self.what:
            check_choice("What to reproduce", name, (*EVERYTHING, "all"))
        return [name for name in EVERYTHING if name in self.what or "all" in self.what]

    @property
    def settings(self) -> Profile:
        """The profile with the user's size and number of repetitions."""
        check_choice("--profile", self.profile, PROFILES)
        profile = PROFILES[self.profile]
        return replace(profile, size=self.size or profile.size, repeats=self.repeats or profile.repeats)

    @property
    def command(self) -> str:
        """What to type to run it again."""
        words = ["lmfcn", "reproduce", *self.what, "--profile", self.profile, "--output", str(self.output)]
        for name, root in self.roots.items():
            words += [f"--{OPTIONS[name]}", str(root)]
        for method, path in self.weights.items():
            words += [WEIGHT_OPTIONS[method], str(path)]
        words += [] if self.size is None else ["--size", str(self.size)]
        words += [] if self.repeats is None else ["--repeats", str(self.repeats)]
        words += ["--only", ",".join(self.only)] if self.only else []
        words += ["--ignore-groups"] if self.by_image else []
        words += [] if self.jobs == 1 else ["--jobs", str(self.jobs)]
        return shlex.join([*words, *([] if self.scheduler is None else ["--scheduler", self.scheduler])])


def prepare(request: Request) -> Reproduction:
    """Check everything that can be checked before the first training, and return what is to run."""
    profile, tables = request.settings, [TABLES[name] for name in request.wanted if name in TABLES]
    rows, seeds = rows_of(tables, quick=profile.is_quick), range(profile.repeats)
    left_out = _left_out(request, profile, rows)
    sources = _sources(request, rows, profile)
    remarks = [IGNORED_GROUPS] if request.by_image and any(images in GROUPS for images, _ in sources) else []
    drawn: Parter = partial(gaussians, Path(), size=profile.size, counts=profile.n_gaussians)
    tasks, data = {(GAUSSIAN, False): drawn}, {(GAUSSIAN, False): f"{profile.size} {profile.n_gaussians}"}
    leaks = {}
    for task, source in sources.items():
        remarks += check_source(source, seeds)
        tasks[task], data[task] = partial(published_parts, source), digest_of_source(source)
        leaks[task] = leak_sentence(source, seeds)
    return Reproduction(
        rows,
        profile,
        seeds,
        request.output / "runs.jsonl",
        tasks,
        data,
        _missing(request),
        left_out,
        request.weights,
        list(dict.fromkeys(remarks)),
        request.jobs,
        request.scheduler,
        leaks,
    )


def _sources(request: Request, rows: Sequence[Row], profile: Profile) -> dict[tuple[str, bool], Source]:
    """Return the published sets that the user has given and the rows need."""
    tasks = dict.fromkeys((row.task.images, row.task.many) for row in rows if row.task.images in request.roots)
    return {
        (images, many): Source(
            images,
            request.roots[images].resolve(),  # workers may run in another folder
            profile.size,
            profile.n_per_many if many else profile.n_per_class,
            binary=not many,
            by_image=request.by_image,
        )
        for images, many in tasks
    }


def _missing(request: Request) -> dict[str, str]:
    return {
        images: f"the images were not given (--{option} DIR)"
        for images, option in OPTIONS.items()
        if images not in request.roots
    }


def _left_out(request: Request, profile: Profile, rows: Sequence[Row]) -> dict[str, str]:
    """Return why rows are not run, by their labels."""
    for path in request.weights.values():
        if not path.is_file():
            raise ValueError(f"{path} must be a file of weights, but there is none of that name.")
    chosen = chosen_labels(request.only)
    check_rows_left(rows, chosen)
    changes = changes_of(profile, LATENT_DIM, request.weights, many=False)
    reasons = {}
    for label, method in METHOD_OF.items():
        if label not in chosen:
            reasons[label] = "left out by --only"
        elif method in NEED_WEIGHTS and method not in request.weights:
            reasons[label] = f"its weights were not given ({WEIGHT_OPTIONS[method]} FILE)"
        else:
            try:
                check_requirements(METHODS[method]().set_params(**changes.get(method, {})), 3, "uint8", profile.size)
            except (ImportError, ValueError, OSError) as error:
                reasons[label] = str(error)
    return reasons
