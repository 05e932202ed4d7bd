"""The paper's sets of images, from the user's folders to the three parts of a repetition."""

import os
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from lmfcn.benchmark.tasks import Parts, divide_by_shares, parts_of
from lmfcn.data.collection import ImageCollection
from lmfcn.data.datasets import PUBLISHED
from lmfcn.data.splits import Split
from lmfcn.data.training_data import fingerprint

GAUSSIAN = "Gaussian"
OPTIONS = {"BACH": "bach", "BreaKHis": "breakhis", "CRC": "crc", "Salzburg": "stex"}
"""The paper's names of the published sets, and those of their loaders and command-line options."""

GROUPS = {"BreaKHis": "patients", "CRC": "slides", "Salzburg": "textures"}
"""What keeps images together in the sets that tell."""

_TILES = 4
_WHOLE_SIDE = 256
"""Salzburg's images from this side on are whole ones and cut into 4 x 4 tiles; smaller ones are tiles already."""


@dataclass(frozen=True)
class Source:
    """A published set in the form that a task needs.

    Attributes
    ----------
    images : str
        The paper's name of the set.
    root : Path
        The user's folder.
    size : int
        Side in pixels that all images are brought to.
    n_per_class : int or None
        At most so many images of each class, evenly over the set.
    binary : bool
        Whether the labels are those of the paper's binary task.
    by_image : bool
        Whether images of one patient, slide or texture may get on different sides of a division.
    """

    images: str
    root: Path
    size: int
    n_per_class: int | None
    binary: bool
    by_image: bool = False


def published_parts(source: Source, seed: int) -> Parts:
    """Divide a published set by a seed, class by class and never through a group."""
    return parts_of(collection_of(source), seed)


@lru_cache(maxsize=4)
def collection_of(source: Source) -> ImageCollection:
    """Return the images of a set, framed and thinned out; warnings about incomplete copies are `check_source`'s."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        images = PUBLISHED[OPTIONS[source.images]].load(source.root, binary=source.binary)
    images = _framed(images, source)
    if source.by_image:
        images.groups = None
    return images if source.n_per_class is None else thinned(images, source.n_per_class)


def check_source(source: Source, seeds: range) -> list[str]:
    """Refuse a folder that cannot be used, and return what is to be said about one that can.

    Every header is read and every repetition divided before anything is trained.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        PUBLISHED[OPTIONS[source.images]].load(source.root, binary=source.binary)
    images = collection_of(source)
    try:
        images.pixel_format()
        for seed in seeds:
            divide_by_shares(images, seed)
    except ValueError as error:
        raise ValueError(f"{source.images}: {error}") from error
    return [str(warning.message) for warning in caught]


def leak_sentence(source: Source, seeds: range) -> str:
    """Say, to follow the name of a set, whether images that belong together were learnt from and tested on."""
    groups = collection_of(replace(source, by_image=False)).groups
    if groups is None:
        return "whether a patient is on two sides of a division cannot be checked, as the set tells nothing of them."
    images, name = collection_of(source), GROUPS[source.images]
    n_groups, n_shared = len(set(groups)), max(_n_shared(groups, divide_by_shares(images, seed)) for seed in seeds)
    if n_shared == 0:
        return f"none of its {n_groups} {name} is on two sides of a division."
    return (
        f"up to {n_shared} of its {n_groups} {name} are on two sides of a division, so that test accuracies are too"
        " good."
    )


def _n_shared(groups: np.ndarray, parts: Split) -> int:
    sides = Counter(group for side in (parts.train, parts.validation, parts.test) for group in set(groups[side]))
    return sum(count > 1 for count in sides.values())


def digest_of_source(source: Source) -> str:
    """Return a text that changes with names, sizes and labels of files and with what is done to them.

    It does not change with their folder, nor with what is in files of the same size: to read all of a large set would
    take minutes before every run.
    """
    images = collection_of(source)
    files = [(os.path.relpath(path, source.root), os.path.getsize(path)) for path in images.paths]
    told = [(name, value) for name, value in asdict(source).items() if name != "root"]
    return fingerprint(None, [repr(files), repr(np.asarray(images.labels).tolist()), repr(told)])


def thinned(images: ImageCollection, n_per_class: int) -> ImageCollection:
    """Return at most `n_per_class` images of each class, as far apart in the collection as can be."""
    labels = np.asarray(images.labels)
    kept = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        places = np.linspace(0, len(members) - 1, min(n_per_class, len(members))).round().astype(int)
        kept.append(members[places])
    return images.subset(np.sort(np.concatenate(kept)))


def _framed(images: ImageCollection, source: Source) -> ImageCollection:
    if source.images == "Salzburg" and images.sizes().min() >= _WHOLE_SIDE:
        return images.resized(_TILES * source.size).tiled(source.size)
    return images.resized(source.size)
