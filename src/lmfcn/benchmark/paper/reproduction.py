"""`lmfcn reproduce`: measure the rows of the paper's tables that can be measured."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lmfcn.baselines import check_requirements
from lmfcn.benchmark.measure import METHODS, NEED_WEIGHTS, RUN_ORDER, WEIGHT_OPTIONS
from lmfcn.benchmark.paper.image_sets import (
    GAUSSIAN,
    GROUPS,
    OPTIONS,
    OUR_GAUSSIAN,
    Source,
    check_source,
    digest_of_source,
    leak_sentence,
    split_published,
)
from lmfcn.benchmark.paper.printed_tables import METHODS_BY_LABEL, Row, check_rows_left, chosen_labels, rows_of
from lmfcn.benchmark.paper.profiles import LATENT_DIM, PROFILES, Profile, changes_of
from lmfcn.benchmark.runs import Run, RunKey
from lmfcn.benchmark.scheduler import MayStart, Report, SplitMaker, Study
from lmfcn.benchmark.tasks import gaussians
from lmfcn.util.checks import check_choice

TABLES = {"table2": 2, "table3": 3, "table4": 4}
FIGURES = ("figure1", "figure3")
EVERYTHING = (*TABLES, *FIGURES)
IGNORED_GROUPS = "Patients, slides and textures are split (--ignore-groups): test accuracies are too good."
DEFAULT_OUTPUT = Path("reproduction")


@dataclass(frozen=True)
class Request:
    """The options of `lmfcn reproduce`.

    Attributes
    ----------
    what : sequence of str
        Names in `EVERYTHING`, or "all".
    output : Path
        Folder for all files.
    profile : "full" or "quick"
    roots : mapping of paths
        Folders of the published sets, by the paper's names.
    weights : mapping of paths
        Files for pretrained networks, by method.
    size : int or None
        Side of the images in pixels; None stands for that of the profile.
    repeats : int or None
        Number of repetitions; None stands for that of the profile.
    only : sequence of str
        Labels of rows to measure, or labels joined by commas; all if empty.
    by_image : bool
        Whether images of one patient, slide or texture may be in different parts of a split.
    jobs : int
    scheduler : str or None
    threads : int
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
    threads: int = 1

    @property
    def wanted(self) -> list[str]:
        """The requested tables and figures, in the paper's order."""
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
        """The command that repeats the reproduction."""
        words = ["lmfcn", "reproduce", *self.what, "--profile", self.profile, "--output", str(self.output)]
        for name, root in self.roots.items():
            words += [f"--{OPTIONS[name]}", str(root)]
        for method, path in self.weights.items():
            words += [WEIGHT_OPTIONS[method], str(path)]
        words += [] if self.size is None else ["--size", str(self.size)]
        words += [] if self.repeats is None else ["--repeats", str(self.repeats)]
        words += ["--only", ",".join(self.only)] if self.only else []
        words += ["--ignore-groups"] if self.by_image else []
        words += [] if self.threads == 1 else ["--threads", str(self.threads)]
        words += [] if self.jobs == 1 else ["--jobs", str(self.jobs)]
        return shlex.join([*words, *([] if self.scheduler is None else ["--scheduler", self.scheduler])])


@dataclass(frozen=True)
class Reproduction:
    """The rows of the requested tables, and the studies that measure them.

    Attributes
    ----------
    rows : sequence of Row
        All rows of the requested tables, whether they can be measured or not.
    profile : Profile
    seeds : range
        One for each repetition.
    output : Path
        File of runs, one line of JSON each.
    tasks : mapping of functions
        Functions of a seed that return the split data, by the paper's name of the set and whether the task has more
        than two classes.
    data : mapping of str
        Digests of the images, under the same keys.
    missing : mapping of str
        Reasons why sets of images are not used, by their names.
    left_out : mapping of str
        Reasons why rows are not run, by their labels.
    weights : mapping of paths
        Files for pretrained networks, by method.
    remarks : sequence of str
        Remarks about the images.
    jobs, scheduler
        As in `Study`.
    leaks : mapping of str
        Sentences about groups in more than one part of a split, under the keys of `tasks`.
    threads : int
        Of every run.
    """

    rows: Sequence[Row]
    profile: Profile
    seeds: range
    output: Path
    tasks: Mapping[tuple[str, bool], SplitMaker]
    data: Mapping[tuple[str, bool], str]
    missing: Mapping[str, str]
    left_out: Mapping[str, str]
    weights: Mapping[str, Path]
    remarks: Sequence[str] = ()
    jobs: int = 1
    scheduler: str | None = None
    leaks: Mapping[tuple[str, bool], str] = field(default_factory=dict)
    threads: int = 1

    @property
    def tables(self) -> list[int]:
        """The numbers of the requested tables."""
        return sorted({row.printed.table for row in self.rows})

    @property
    def measurable(self) -> list[Row]:
        """The rows whose images are given and whose method can run."""
        return [row for row in self.rows if self.obstacle(row) is None]

    @property
    def keys(self) -> list[RunKey]:
        """The keys of all runs that can be measured."""
        return list(dict.fromkeys(row.key(seed) for row in self.measurable for seed in self.seeds))

    def obstacle(self, row: Row) -> str | None:
        """Return why a row cannot be measured, or None if it can."""
        return self.missing.get(row.task.images, self.left_out.get(row.label))

    @property
    def notes(self) -> list[str]:
        """Notes to print before anything runs."""
        images = {row.task.images for row in self.rows}
        labels = {row.label for row in self.rows}
        return [
            *filter(None, [self.profile.warning]),
            *(f"{name} is missing: {reason}." for name, reason in self.missing.items() if name in images),
            *(f"{name} is not run: {reason.rstrip('.')}." for name, reason in self.left_out.items() if name in labels),
            *self.remarks,
        ]

    def run(self, report: Report, may_start: MayStart = lambda _: True) -> list[str]:
        """Measure the runs that are not in the file; return a sentence for each failure."""
        failures = []
        for study in self.studies():
            failures += study.run(report, may_start)
        return failures

    def runs(self) -> dict[RunKey, Run]:
        """Return the runs that are in the file with the same requested parameters and the same images."""
        wanted = set(self.keys)
        found = (pair for study in self.studies() for pair in study.finished().items())
        return {key: run for key, run in found if key in wanted}

    @property
    def leak_check(self) -> dict[str, str]:
        """Sentences about groups in more than one part of a split, by `Task.split_name`."""
        names = {(row.task.images, row.task.multiclass): row.task.split_name for row in self.measurable}
        return {names[images]: sentence for images, sentence in self.leaks.items() if images in names}

    def printed_runs(self) -> list[Run]:
        """Return the finished runs in the order of the tables, each once and with the names of its row.

        The method is the label of the row. Tasks that differ only in the latent dimensions become one task.
        """
        found = self.runs()
        names = {row.key(seed): (row.task.split_name, row.label) for row in self.rows for seed in self.seeds}
        return [replace(found[key], task=task, method=label) for key, (task, label) in names.items() if key in found]

    def studies(self) -> list[Study]:
        """Return one study for all tasks whose methods have the same parameters."""
        settings = dict.fromkeys((row.task.latent_dim, row.task.multiclass) for row in self.measurable)
        return [self._study(latent_dim, multiclass=multiclass) for latent_dim, multiclass in settings]

    def label_of(self, key: RunKey) -> str:
        """Return the label of the rows that a run belongs to."""
        return next(row.label for row in self.rows if row.key(key.seed) == key)

    def _study(self, latent_dim: int, *, multiclass: bool) -> Study:
        rows = [
            row for row in self.measurable if (row.task.latent_dim, row.task.multiclass) == (latent_dim, multiclass)
        ]
        tasks = {row.task.name: (row.task.images, multiclass) for row in rows}
        return Study(
            {name: self.tasks[images] for name, images in tasks.items()},
            sorted({row.method for row in rows}, key=RUN_ORDER.index),
            self.seeds,
            self.output,
            changes_of(self.profile, latent_dim, self.weights, multiclass=multiclass),
            on_top_of_cnn=(),
            tuning_seed=None,
            data={name: self.data[images] for name, images in tasks.items()},
            jobs=self.jobs,
            threads=self.threads,
            scheduler=self.scheduler,
            labels={row.method: row.label for row in rows},
        )


def prepare(request: Request) -> Reproduction:
    """Check images, methods and weights before the first training; return the reproduction to run."""
    profile, tables = request.settings, [TABLES[name] for name in request.wanted if name in TABLES]
    rows, seeds = rows_of(tables, quick=profile.is_quick), range(profile.repeats)
    left_out = _left_out(request, profile, rows)
    sources = _sources(request, rows, profile)
    remarks = [IGNORED_GROUPS] if request.by_image and any(images in GROUPS for images, _ in sources) else []
    tasks, data = _gaussian_tasks(profile)
    leaks = {}
    for task, source in sources.items():
        remarks += check_source(source, seeds)
        tasks[task], data[task] = partial(split_published, source), digest_of_source(source)
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
        request.threads,
    )


def _gaussian_tasks(profile: Profile) -> tuple[dict[tuple[str, bool], SplitMaker], dict[tuple[str, bool], str]]:
    """Return how both kinds of Gaussian images are drawn, and their digests."""
    draw = partial(gaussians, Path(), size=profile.size, counts=profile.n_gaussians)
    drawn = f"{profile.size} {profile.n_gaussians}"
    tasks: dict[tuple[str, bool], SplitMaker] = {
        (GAUSSIAN, False): partial(draw, kind="paper"),
        (OUR_GAUSSIAN, False): draw,
    }
    return tasks, {(GAUSSIAN, False): f"paper {drawn}", (OUR_GAUSSIAN, False): drawn}


def _sources(request: Request, rows: Sequence[Row], profile: Profile) -> dict[tuple[str, bool], Source]:
    """Return the published sets that are given and that the rows need."""
    tasks = dict.fromkeys((row.task.images, row.task.multiclass) for row in rows if row.task.images in request.roots)
    return {
        (images, multiclass): Source(
            images,
            request.roots[images].resolve(),  # workers may run in another folder
            profile.size,
            profile.n_per_many if multiclass else profile.n_per_class,
            binary=not multiclass,
            by_image=request.by_image,
        )
        for images, multiclass in tasks
    }


def _missing(request: Request) -> dict[str, str]:
    return {
        images: f"the images were not given (--{option} DIR)"
        for images, option in OPTIONS.items()
        if images not in request.roots
    }


def _left_out(request: Request, profile: Profile, rows: Sequence[Row]) -> dict[str, str]:
    """Return the reasons why rows are not run, by their labels."""
    for path in request.weights.values():
        if not path.is_file():
            raise ValueError(f"{path} must be a file of weights, but there is none of that name.")
    chosen = chosen_labels(request.only)
    check_rows_left(rows, chosen)
    changes = changes_of(profile, LATENT_DIM, request.weights, multiclass=False)
    reasons = {}
    for label, method in METHODS_BY_LABEL.items():
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
