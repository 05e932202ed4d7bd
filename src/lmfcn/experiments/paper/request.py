"""What a user asks of a reproduction, and how it becomes one."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lmfcn.baselines.able import check_able
from lmfcn.experiments.measuring import METHODS, NEED_WEIGHTS
from lmfcn.experiments.paper.profiles import LATENT_DIM, PROFILES, Profile, changes_of
from lmfcn.experiments.paper.reproduction import Reproduction
from lmfcn.experiments.paper.rows import Row, rows_of
from lmfcn.experiments.paper.sets import GAUSSIAN, OPTIONS, Source, check_source, digest_of_source, published_parts
from lmfcn.experiments.selection import choose_methods
from lmfcn.experiments.studies import Parter
from lmfcn.experiments.tasks import gaussians
from lmfcn.parameters import check_choice

TABLES = {"table2": 2, "table3": 3, "table4": 4}
FIGURES = ("figure1", "figure3")
EVERYTHING = (*TABLES, *FIGURES)
WEIGHT_OPTIONS = {"ResNet18": "--resnet18-weights", "InceptionV3": "--inception-weights"}
DEFAULT_OUTPUT = Path("reproduction")
PAPER_METHODS = tuple(dict.fromkeys(row.method for row in rows_of(TABLES.values(), quick=False)))


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
        Methods to measure, by names or names joined by commas; all if there are none.
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
        return shlex.join([*words, *(["--ignore-groups"] if self.by_image else [])])


def prepare(request: Request) -> Reproduction:
    """Check everything that can be checked before the first training, and return what is to run."""
    profile, tables = request.settings, [TABLES[name] for name in request.wanted if name in TABLES]
    left_out = _left_out(request, profile)
    rows, seeds = rows_of(tables, quick=profile.is_quick), range(profile.repeats)
    sources = _sources(request, rows, profile)
    remarks = [remark for source in sources.values() for remark in check_source(source, seeds)]
    drawn: Parter = partial(gaussians, Path(), size=profile.size, counts=profile.n_gaussians)
    return Reproduction(
        rows,
        profile,
        seeds,
        request.output / "runs.jsonl",
        {(GAUSSIAN, False): drawn, **{task: partial(published_parts, source) for task, source in sources.items()}},
        {
            (GAUSSIAN, False): f"{profile.size} {profile.n_gaussians}",
            **{task: digest_of_source(source) for task, source in sources.items()},
        },
        _missing(request),
        left_out,
        request.weights,
        list(dict.fromkeys(remarks)),
        request.jobs,
        request.scheduler,
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


def _left_out(request: Request, profile: Profile) -> dict[str, str]:
    """Return why methods of the paper's tables are not run."""
    for path in request.weights.values():
        if not path.is_file():
            raise ValueError(f"{path} must be a file of weights, but there is none of that name.")
    chosen = _chosen(request.only)
    changes = changes_of(profile, LATENT_DIM, request.weights, many=False)
    reasons = {}
    for method in PAPER_METHODS:
        if method not in chosen:
            reasons[method] = "left out by --only"
        elif method in NEED_WEIGHTS and method not in request.weights:
            reasons[method] = f"its weights were not given ({WEIGHT_OPTIONS[method]} FILE)"
        else:
            try:
                check_able(METHODS[method]().set_params(**changes.get(method, {})), 3, "uint8", profile.size)
            except (ImportError, ValueError, OSError) as error:
                reasons[method] = str(error)
    return reasons


def _chosen(only: Sequence[str]) -> Sequence[str]:
    if not only:
        return PAPER_METHODS
    for method in (chosen := choose_methods(only)):
        check_choice("--only", method, PAPER_METHODS)
    return chosen
