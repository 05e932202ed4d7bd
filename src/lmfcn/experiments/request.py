"""What a user asks of a comparison, and how it becomes one."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmfcn.data.collections import ImageCollection
from lmfcn.data.framing import Color
from lmfcn.experiments.comparing import Comparison
from lmfcn.experiments.measuring import CHANGES, Changes
from lmfcn.experiments.own_data import look_at, open_images
from lmfcn.experiments.selection import DEFAULT_METHODS, QUICK_CHANGES, WEIGHT_OPTIONS, able_methods, choose_methods

REPEATS, QUICK_REPEATS, QUICK_SIZE = 5, 3, 64


@dataclass(frozen=True)
class Request:
    """The options of `lmfcn compare`.

    Attributes
    ----------
    data : Path
        Folder, table, list or arrays of images.
    output : Path
        Folder for everything that is written.
    methods : sequence of str
        Names, "all", or names joined by commas.
    repeats : int or None
        Number of divisions; None leaves it to `quick`.
    size : int or None
        Side in pixels to bring all images to.
    color : "keep", "grey" or "rgb"
    seed : int
        Of the first division; the others count on from it.
    ignore_split : bool
        Whether to give up a division that the data bring.
    quick : bool
        Whether a first look is enough: few epochs, few repeats, images of at most 64 pixels a side.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler whose workers do the runs.
    weights : mapping of paths
        Files for pretrained networks, by method; these methods run too.
    """

    data: Path
    output: Path = Path("comparison")
    methods: Sequence[str] = DEFAULT_METHODS
    repeats: int | None = None
    size: int | None = None
    color: Color = "keep"
    seed: int = 0
    ignore_split: bool = False
    quick: bool = False
    jobs: int = 1
    scheduler: str | None = None
    weights: Mapping[str, Path] = field(default_factory=dict)

    @property
    def seeds(self) -> range:
        """One seed for each repeat."""
        return range(self.seed, self.seed + (self.repeats or (QUICK_REPEATS if self.quick else REPEATS)))

    @property
    def command(self) -> str:
        """What to type to run it again."""
        words = ["lmfcn", "compare", str(self.data), "--output", str(self.output), "--repeats", str(len(self.seeds))]
        if tuple(self.methods) != DEFAULT_METHODS:
            words += ["--methods", ",".join(self.methods)]
        for method, path in self.weights.items():
            words += [WEIGHT_OPTIONS[method], str(path)]
        words += [] if self.size is None else ["--size", str(self.size)]
        words += [] if self.color == "keep" else ["--color", self.color]
        words += [] if self.seed == 0 else ["--seed", str(self.seed)]
        words += ["--ignore-split"] if self.ignore_split else []
        words += ["--quick"] if self.quick else []
        words += [] if self.jobs == 1 else ["--jobs", str(self.jobs)]
        return shlex.join([*words, *([] if self.scheduler is None else ["--scheduler", self.scheduler])])


def prepare(request: Request, changes: Changes | None = None, *, verbose: bool = False) -> Comparison:
    """Check everything that can be checked before the first training, and return what is to run.

    Parameters
    ----------
    request : Request
    changes : mapping of mappings, optional
        What differs from the defaults of each method, instead of what `quick` or a whole comparison changes.
    verbose : bool, default=False
        Show a progress bar while the images are read.
    """
    methods = choose_methods([*request.methods, *request.weights])
    weights = _weights(request)
    images = _images(request)
    data = look_at(images, request.seeds, verbose=verbose)
    if changes is None:
        changes = QUICK_CHANGES if request.quick else CHANGES
    changes = {**changes, **{method: {**changes.get(method, {}), "weights": path} for method, path in weights.items()}}
    able, left_out = able_methods(methods, images, changes)
    name = _name(request.data.resolve()) + (", quick" if request.quick else "")
    output = request.output / "runs.jsonl"
    options = (request.quick, request.jobs, request.scheduler)
    return Comparison(name, images, data, able, left_out, request.seeds, output, changes, *options)


def _weights(request: Request) -> dict[str, str]:
    """Return the files of weights as any process finds them."""
    for path in request.weights.values():
        if not path.is_file():
            raise ValueError(f"{path} must be a file of weights, but there is none of that name.")
    return {method: str(path.resolve()) for method, path in request.weights.items()}


def _name(data: Path) -> str:
    return data.name if data.is_dir() else data.stem


def _images(request: Request) -> ImageCollection:
    images = open_images(request.data, size=request.size, color=request.color, ignore_split=request.ignore_split)
    if request.quick and request.size is None and images.sizes().max() > QUICK_SIZE:
        return images.resized(QUICK_SIZE)
    return images
