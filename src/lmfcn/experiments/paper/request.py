"""What a user asks of a reproduction, and how it becomes one."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lmfcn.baselines.able import check_able
from lmfcn.experiments.measuring import METHODS, NEED_WEIGHTS
from lmfcn.experiments.paper.labels import METHOD_OF, check_rows_left, chosen_labels
from lmfcn.experiments.paper.profiles import LATENT_DIM, PROFILES, Profile, changes_of
from lmfcn.experiments.paper.reproduction import Reproduction
from lmfcn.experiments.paper.rows import Row, rows_of
from lmfcn.experiments.paper.sets import (
    GAUSSIAN,
    GROUPS,
    OPTIONS,
    Source,
    check_source,
    digest_of_source,
    leak_sentence,
    published_parts,
)
from lmfcn.experiments.selection import WEIGHT_OPTIONS
from lmfcn.experiments.studies import Parter
from lmfcn.experiments.tasks import gaussians
from lmfcn.parameters import check_choice

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
                check_able(METHODS[method]().set_params(**changes.get(method, {})), 3, "uint8", profile.size)
            except (ImportError, ValueError, OSError) as error:
                reasons[label] = str(error)
    return reasons
