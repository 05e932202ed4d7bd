"""Tasks to compare methods on: built-in images, published sets on disk, or the user's own, with their splits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from lmfcn.data.arrays import as_generator, check_smallest_side
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Color, SizeFit
from lmfcn.data.gaussians import make_gaussians
from lmfcn.data.image_files import CollectionError
from lmfcn.data.leaks import KEPT_TOGETHER, Inspection, describe_groups, duplicates_across, find_duplicates
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import Split, split
from lmfcn.data.training_data import SPLIT_ANYWAY, fingerprint
from lmfcn.util.packages import needs

LUNG_CLASSES = ("lung_aca", "lung_n", "lung_scc")
_USPTEX_CLASSES = 20
_TEXTURES = ("brick", "grass", "gravel")
_TILE, _BLOCK = 64, 128


class Subset(NamedTuple):
    """Images (n, height, width[, channels]), as an array or a collection with its groups, and their labels (n,)."""

    images: np.ndarray | ImageCollection
    labels: np.ndarray


@dataclass(frozen=True)
class SplitData:
    """The training, validation and test images of one split of a task.

    Test images are predicted once. With `with_summary`, a run of LMFCN also makes a `ModelSummary` for the report.
    """

    train: Subset
    validation: Subset
    test: Subset
    with_summary: bool = field(default=False, kw_only=True)

    def fingerprint(self) -> str:
        """Return a text that changes with any pixel, any label, or the split."""
        return fingerprint(None, [fingerprint(*subset) for subset in (self.train, self.validation, self.test)])


Task = Callable[[Path, int], SplitData]
"""Function of the data folder and a seed that returns the split data."""


def split_by_counts(images: ImageCollection, counts: Sequence[int | None], seed: int) -> SplitData:
    """Split a collection class by class, groups kept together; `counts` are those of `split`."""
    return take_split(images, split(images.labels, counts=counts, groups=images.groups, random_state=seed))


def take_split(images: ImageCollection, indices: Split) -> SplitData:
    """Return the three subsets of a collection that a split lists."""
    chosen = (images[rows] for rows in (indices.train, indices.validation, indices.test))
    return SplitData(*(Subset(subset, subset.labels) for subset in chosen))


def gaussians(
    _: Path,
    seed: int,
    *,
    size: int = 64,
    counts: tuple[int, int, int] = (60, 60, 150),
    kind: Literal["default", "paper"] = "default",
) -> SplitData:
    """Draw striped Gaussian textures, new ones for every seed."""
    random = as_generator(seed)
    return SplitData(*(Subset(*make_gaussians(count, size, random, kind=kind)) for count in counts))


def lung(
    data: Path,
    seed: int,
    *,
    classes: Sequence[str] = ("lung_aca", "lung_scc"),
    size: int | None = 64,
    counts: Sequence[int | None] = (150, 50, None),
) -> SplitData:
    """Split lung histology so that all images of a source tile are in one subset."""
    images = _open(data / "lung" / "groups.csv", "a table of the images with the columns path, label and group")
    if images.groups is None:
        raise ValueError(f"{data / 'lung' / 'groups.csv'} must have a column 'group': images of one tile look alike.")
    return split_by_counts(_resized(_of_classes(images, classes), size), counts, seed)


def neu(data: Path, seed: int, *, n_train: int, size: int | None = 64) -> SplitData:
    """Split steel surfaces, with `n_train` training images per class and up to 20 validation images."""
    images = _open(data / "neu", "a folder of images per class", color="grey")
    return split_by_counts(_resized(images, size), (n_train, min(n_train, 20), None), seed)


def usptex(data: Path, seed: int, *, n_classes: int = _USPTEX_CLASSES, size: int | None = 64) -> SplitData:
    """Split the twelve images of each of the first classes of USPTex."""
    images = _open(data / "usptex", "a folder of images per class")
    names = np.unique(np.asarray(images.labels))
    if len(names) < n_classes:
        raise ValueError(f"{data / 'usptex'} must hold at least {n_classes} classes, got {len(names)}.")
    return split_by_counts(_resized(_of_classes(images, names[:n_classes]), size), (6, 3, 3), seed)


def one_per_group(data: Path, seed: int, *, counts: tuple[int, int] = (150, 48)) -> SplitData:
    """Split lung histology, two classes, with one image of each source tile to learn from; the others are the test."""
    split_data = lung(data, seed, size=None, counts=(*(4 * count for count in counts), None))
    train, validation = (_first_of_groups(subset) for subset in (split_data.train, split_data.validation))
    return SplitData(train, validation, split_data.test)


def _first_of_groups(subset: Subset) -> Subset:
    images = subset.images
    if not isinstance(images, ImageCollection) or images.groups is None:
        return subset
    chosen = images.subset(np.sort(np.unique(images.groups, return_index=True)[1]))
    return Subset(chosen, np.asarray(chosen.labels))


def _resized(images: ImageCollection, size: int | None) -> ImageCollection:
    return images if size is None else images.resized(size)


def textures(_: Path, seed: int) -> SplitData:
    """Split tiles of scikit-image's brick, grass and gravel; the four tiles of a block stay together."""
    pictures = needs("skimage.data", "textures")
    tiles, groups = zip(*(_tiles(getattr(pictures, name)(), name) for name in _TEXTURES), strict=True)
    labels = np.repeat(_TEXTURES, [len(of_texture) for of_texture in tiles])
    return split_by_counts(ImageCollection(np.concatenate(tiles), labels, np.concatenate(groups)), (20, 12, None), seed)


TASKS: dict[str, Task] = {
    "gaussians": gaussians,
    "lung": lung,
    "lung-3": partial(lung, classes=LUNG_CLASSES, counts=(100, 50, None)),
    "lung-128": partial(lung, size=128),
    "neu-10": partial(neu, n_train=10),
    "neu-20": partial(neu, n_train=20),
    "neu-50": partial(neu, n_train=50),
    "usptex": usptex,
    "textures": textures,
    "lung-224": partial(lung, size=None),
    "lung-3-224": partial(lung, classes=LUNG_CLASSES, counts=(100, 50, None), size=None),
    "lung-groups": one_per_group,
    "neu-5-200": partial(neu, n_train=5, size=None),
    "neu-10-200": partial(neu, n_train=10, size=None),
    "neu-20-200": partial(neu, n_train=20, size=None),
    "neu-50-200": partial(neu, n_train=50, size=None),
    "usptex-128": partial(usptex, size=None),
    "usptex-191": partial(usptex, n_classes=191, size=None),
}
"""Counts are per class. "gaussians" and "textures" need nothing in the folder of the data. Images are resized to 64x64,
or to the size that the name says; those of the tasks below "textures" are as they come."""

TUNED_ON = {"lung-3": "lung", "lung-128": "lung", "neu-10": "neu-20", "neu-50": "neu-20"}
"""Tasks whose baselines use the parameters that were tuned on another task of the same images, and that task."""


def _tiles(picture: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
    """Cut a grey picture into tiles (n, 64, 64); neighbours within a block of 128x128 share their group."""
    corners = [
        (top, left)
        for top in range(0, picture.shape[0] - _TILE + 1, _TILE)
        for left in range(0, picture.shape[1] - _TILE + 1, _TILE)
    ]
    tiles = np.stack([picture[top : top + _TILE, left : left + _TILE] for top, left in corners])
    return tiles, [f"{name} {top // _BLOCK} {left // _BLOCK}" for top, left in corners]


def _open(path: Path, what: str, **options: Any) -> ImageCollection:
    if not path.exists():
        raise ValueError(f"This task needs {path}, {what}, but there is nothing of that name.")
    return open_collection(path, **options)


def _of_classes(images: ImageCollection, classes: Sequence[str] | np.ndarray) -> ImageCollection:
    labels = np.asarray(images.labels)
    missing = sorted(set(classes) - set(labels.tolist()))
    if missing:
        raise ValueError(f"The images of this task lack the classes {', '.join(missing)}.")
    return images.subset(np.isin(labels, list(classes)))


FRACTIONS = (0.6, 0.2, 0.2)
"""Fractions of the images for training, validation and test."""


@dataclass(frozen=True)
class DataSummary:
    """The images of a comparison.

    Attributes
    ----------
    found : Inspection
        Classes, sizes, channels and groups.
    size : int or None
        Side in pixels that all images were resized to, if they were.
    duplicates : list of str
        Descriptions of groups of images that are the same or nearly the same.
    n_leaks : list of int
        For each repeat, the number of these groups that are in more than one subset.
    duplicate_sentence : str
        How many images are the same as another or nearly the same, in the words of every command.
    groups : array (n,) or None
        The groups that the splits keep together: the given ones, joined with near-identical images.
    """

    found: Inspection
    size: int | None
    duplicates: list[str]
    n_leaks: list[int]
    duplicate_sentence: str = ""
    groups: np.ndarray | None = None

    @property
    def leak_sentence(self) -> str:
        """A sentence about whether test images may also be training images."""
        if not self.duplicate_sentence:
            return "No image is the same or nearly the same as another."
        most = max(self.n_leaks)
        if most == 0:
            return f"{self.duplicate_sentence} {KEPT_TOGETHER}"
        return (
            f"{self.duplicate_sentence} Up to {most} of the groups {'is' if most == 1 else 'are'} in more than one part"
            " of a split, so that test accuracies may be too good; leave out --split-duplicates to keep them together."
        )


def check_classes(path: Path, labels: np.ndarray) -> None:
    """Raise ValueError if all images are of one class."""
    classes = np.unique(labels).tolist()
    if len(classes) < 2:
        raise ValueError(f"{path} must hold at least two classes, got one: {classes[0]}.")


def open_images(
    path: Path,
    *,
    size: int | None = None,
    color: Color = "keep",
    ignore_split: bool = False,
    group_pattern: str | None = None,
    fit: SizeFit = "crop",
) -> ImageCollection:
    """Open a labelled collection for repeated splits; one that is already split is refused.

    Parameters
    ----------
    path : Path
        Whatever `open_collection` reads.
    size : int, optional
        Side in pixels of all images.
    color : {"keep", "grey", "rgb"}, default="keep"
    ignore_split : bool, default=False
        Whether to ignore a split that comes with the collection.
    group_pattern : str, optional
        Pattern that finds the groups in the names of the files.
    fit : {"crop", "pad", "stretch"}, default="crop"
        How images of another shape get the size.
    """
    images = open_collection(path, color=color, group_pattern=group_pattern)
    if images.labels is None:
        raise ValueError(f"{path} has no labels; a comparison needs the class of every image.")
    check_classes(path, images.labels)
    names = [] if images.split is None else sorted(set(images.split.tolist()))
    if len(names) > 1 and not ignore_split:
        raise ValueError(
            f"{path} is already split ({', '.join(map(str, names))}), but every repeat needs a split of its own;"
            " with --ignore-split all images are split anew, groups kept together."
        )
    return images if size is None else images.resized(size, fit)


def split_indices(images: ImageCollection, seed: int) -> Split:
    """Return the indices of the split of a seed, made class by class with groups kept together."""
    return split(images.labels, fractions=FRACTIONS, groups=images.groups, random_state=seed)


def split_images(images: ImageCollection, seed: int) -> SplitData:
    """Return the training, validation and test images of the split of a seed."""
    return take_split(images, split_indices(images, seed))


def inspect_images(
    images: ImageCollection, seeds: Sequence[int], *, split_duplicates: bool = False, verbose: bool = False
) -> DataSummary:
    """Read every image once and make every split; return a summary, or raise an error if no comparison is possible.

    Parameters
    ----------
    images : ImageCollection
    seeds : sequence of int
        One for each repeat.
    split_duplicates : bool, default=False
        Whether a split may separate near-identical images.
    verbose : bool, default=False
        Show a progress bar.
    """
    _make_splits(images, seeds)  # refuses bad groups before the images are read
    images.pixel_format()
    height, width = images.sizes().min(axis=0).tolist()
    check_smallest_side(height, width)
    duplicates = find_duplicates(images, verbose=verbose)
    if duplicates.unreadable:
        raise CollectionError(duplicates.unreadable)
    joined = images if split_duplicates else duplicates.keep_together(images)
    splits = _make_splits(joined, seeds, joined=joined.groups is not images.groups)
    n_leaks = [len(duplicates_across(duplicates, indices, len(images)).connected) for indices in splits]
    size = None if images.preprocessing.size is None else images.preprocessing.size[0]
    lines = describe_groups(images, duplicates)
    return DataSummary(images.summary(), size, lines, n_leaks, duplicates.sentence, joined.groups)


def _make_splits(images: ImageCollection, seeds: Sequence[int], *, joined: bool = False) -> list[Split]:
    try:
        return [split_indices(images, seed) for seed in seeds]
    except ValueError as error:
        raise ValueError(f"{error} {SPLIT_ANYWAY}" if joined else str(error)) from error
