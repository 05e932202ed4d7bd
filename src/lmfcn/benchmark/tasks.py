"""Tasks to compare methods on: images and their splits, built-in, on disk, or the user's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lmfcn.data.arrays import as_generator, check_smallest_side
from lmfcn.data.collection import ImageCollection
from lmfcn.data.datasets import make_gaussians
from lmfcn.data.framing import Color
from lmfcn.data.image_files import CollectionError
from lmfcn.data.leaks import Inspection, describe_groups, duplicates_across, find_duplicates
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import Split, split
from lmfcn.data.training_data import fingerprint
from lmfcn.util.packages import needs

LUNG_CLASSES = ("lung_aca", "lung_n", "lung_scc")
_USPTEX_CLASSES = 20
_TEXTURES = ("brick", "grass", "gravel")
_TILE, _BLOCK = 64, 128


class Part(NamedTuple):
    """Images (n, height, width[, channels]), as an array or a collection with its groups, and their labels (n,)."""

    images: np.ndarray | ImageCollection
    labels: np.ndarray


@dataclass(frozen=True)
class Parts:
    """Images to fit with, to choose by, and to test on once.

    With `exhibited`, whoever fits LMFCN on them also makes an exhibit of it: pictures for a report.
    """

    train: Part
    validation: Part
    test: Part
    exhibited: bool = field(default=False, kw_only=True)

    def fingerprint(self) -> str:
        """Return a text that changes with any pixel, any label, or the division."""
        return fingerprint(None, [fingerprint(*part) for part in (self.train, self.validation, self.test)])


Task = Callable[[Path, int], Parts]
"""From the folder of the data and a seed to the three parts."""


def divide(images: ImageCollection, counts: Sequence[int | None], seed: int) -> Parts:
    """Divide a collection class by class and never through a group; `counts` are those of `split`."""
    return parts_at(images, split(images.labels, counts=counts, groups=images.groups, random_state=seed))


def parts_at(images: ImageCollection, positions: Split) -> Parts:
    """Return the three parts of a collection that a division lists."""
    chosen = (images[part] for part in (positions.train, positions.validation, positions.test))
    return Parts(*(Part(part, part.labels) for part in chosen))


def gaussians(_: Path, seed: int, *, size: int = 64, counts: tuple[int, int, int] = (60, 60, 150)) -> Parts:
    """Draw striped Gaussian textures, new ones for every seed."""
    random = as_generator(seed)
    return Parts(*(Part(*make_gaussians(count, size, random)) for count in counts))


def lung(
    data: Path,
    seed: int,
    *,
    classes: Sequence[str] = ("lung_aca", "lung_scc"),
    size: int = 64,
    counts: Sequence[int | None] = (150, 50, None),
) -> Parts:
    """Divide lung histology so that no source tile is on two sides."""
    images = _open(data / "lung" / "groups.csv", "a table of the images with the columns path, label and group")
    if images.groups is None:
        raise ValueError(f"{data / 'lung' / 'groups.csv'} must have a column 'group': images of one tile look alike.")
    return divide(_of_classes(images, classes).resized(size), counts, seed)


def neu(data: Path, seed: int, *, n_train: int) -> Parts:
    """Divide steel surfaces, with `n_train` training images per class and up to 20 to choose by."""
    images = _open(data / "neu", "a folder of images per class", color="grey")
    return divide(images.resized(64), (n_train, min(n_train, 20), None), seed)


def usptex(data: Path, seed: int) -> Parts:
    """Divide the twelve images of each of the first twenty classes of USPTex."""
    images = _open(data / "usptex", "a folder of images per class")
    names = np.unique(np.asarray(images.labels))
    if len(names) < _USPTEX_CLASSES:
        raise ValueError(f"{data / 'usptex'} must hold at least {_USPTEX_CLASSES} classes, got {len(names)}.")
    return divide(_of_classes(images, names[:_USPTEX_CLASSES]).resized(64), (6, 3, 3), seed)


def textures(_: Path, seed: int) -> Parts:
    """Divide tiles of scikit-image's brick, grass and gravel by the blocks of four that they lie in."""
    pictures = needs("skimage.data", "textures")
    tiles, groups = zip(*(_tiles(getattr(pictures, name)(), name) for name in _TEXTURES), strict=True)
    labels = np.repeat(_TEXTURES, [len(part) for part in tiles])
    return divide(ImageCollection(np.concatenate(tiles), labels, np.concatenate(groups)), (20, 12, None), seed)


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
}
"""Counts are per class. "gaussians" and "textures" need nothing in the folder of the data."""

TUNED_ON = {"lung-3": "lung", "lung-128": "lung", "neu-10": "neu-20", "neu-50": "neu-20"}
"""Tasks of the same images take over the parameters that were chosen for comparators on one of them."""


def _tiles(picture: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
    """Cut a grey picture into tiles (n, 64, 64); neighbours within a block of 128x128 share their group."""
    places = [
        (top, left)
        for top in range(0, picture.shape[0] - _TILE + 1, _TILE)
        for left in range(0, picture.shape[1] - _TILE + 1, _TILE)
    ]
    tiles = np.stack([picture[top : top + _TILE, left : left + _TILE] for top, left in places])
    return tiles, [f"{name} {top // _BLOCK} {left // _BLOCK}" for top, left in places]


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
"""Shares of the images for training, for choosing, and for the test."""


@dataclass(frozen=True)
class DataSummary:
    """What was compared on.

    Attributes
    ----------
    found : Inspection
        Classes, sizes, channels and groups.
    size : int or None
        Side in pixels that all images were brought to, if they were.
    duplicates : list of str
        Groups of images that are the same or nearly the same, described.
    n_leaks : list of int
        How many of these groups each repeat has on two sides of its division.
    """

    found: Inspection
    size: int | None
    duplicates: list[str]
    n_leaks: list[int]

    @property
    def leak_sentence(self) -> str:
        """Say whether the same image may have been learnt from and tested on."""
        if not self.duplicates:
            return "No image is the same or nearly the same as another."
        groups = f"Groups of images that are the same or nearly the same: {len(self.duplicates)}"
        most = max(self.n_leaks)
        if most == 0:
            return f"{groups}; none is on two sides of a division."
        return (
            f"{groups}; up to {most} of them {'is' if most == 1 else 'are'} on two sides of a division, so that test"
            " accuracies may be too good. Remove duplicates, or give images that belong together the same group."
        )


def check_classes(path: Path, labels: np.ndarray) -> None:
    """Refuse images that are all of one class."""
    classes = np.unique(labels).tolist()
    if len(classes) < 2:
        raise ValueError(f"{path} must hold at least two classes, got one: {classes[0]}.")


def open_images(
    path: Path, *, size: int | None = None, color: Color = "keep", ignore_split: bool = False
) -> ImageCollection:
    """Open a labelled collection for repeated division; one that is divided already is refused.

    Parameters
    ----------
    path : Path
        Whatever `open_collection` reads.
    size : int, optional
        Side in pixels to bring all images to.
    color : {"keep", "grey", "rgb"}, default="keep"
    ignore_split : bool, default=False
        Whether a division that comes with the collection is given up.
    """
    images = open_collection(path, color=color)
    if images.labels is None:
        raise ValueError(f"{path} has no labels; a comparison needs the class of every image.")
    check_classes(path, images.labels)
    names = [] if images.split is None else sorted(set(images.split.tolist()))
    if len(names) > 1 and not ignore_split:
        raise ValueError(
            f"{path} is divided already ({', '.join(map(str, names))}), but every repeat needs a division of its own;"
            " with --ignore-split all images are divided anew, those of one group never."
        )
    return images if size is None else images.resized(size)


def divide_by_shares(images: ImageCollection, seed: int) -> Split:
    """Return the division of a seed, class by class and never through a group."""
    return split(images.labels, fractions=FRACTIONS, groups=images.groups, random_state=seed)


def parts_of(images: ImageCollection, seed: int) -> Parts:
    """Return the three parts of the division of a seed."""
    return parts_at(images, divide_by_shares(images, seed))


def look_at(images: ImageCollection, seeds: Sequence[int], *, verbose: bool = False) -> DataSummary:
    """Read every image once and check every division; refuse what cannot be compared on.

    Parameters
    ----------
    images : ImageCollection
    seeds : sequence of int
        One for each repeat.
    verbose : bool, default=False
        Show a progress bar.
    """
    divisions = [divide_by_shares(images, seed) for seed in seeds]
    images.pixel_format()
    height, width = images.sizes().min(axis=0).tolist()
    check_smallest_side(height, width)
    duplicates = find_duplicates(images, verbose=verbose)
    if duplicates.unreadable:
        raise CollectionError(duplicates.unreadable)
    n_leaks = [len(duplicates_across(duplicates, parts, len(images)).all_groups) for parts in divisions]
    size = None if images.preprocessing.size is None else images.preprocessing.size[0]
    return DataSummary(images.summary(), size, describe_groups(images, duplicates), n_leaks)
