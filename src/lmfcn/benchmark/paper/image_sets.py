"""The paper's sets of images: read from the user's folders and split for every repetition."""

import os
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from lmfcn.benchmark.tasks import SplitData, split_images, split_indices
from lmfcn.data.collection import ImageCollection
from lmfcn.data.datasets import PUBLISHED
from lmfcn.data.splits import Split
from lmfcn.data.training_data import fingerprint

GAUSSIAN, OUR_GAUSSIAN = "Gaussian", "Gaussian (ours)"
"""The paper's Gaussian images, and our harder ones (`make_gaussians` draws both), which the paper does not have."""
OPTIONS = {"BACH": "bach", "BreaKHis": "breakhis", "CRC": "crc", "Salzburg": "stex"}
"""The paper's names of the published sets, and those of their loaders and command-line options."""

GROUPS = {"BreaKHis": "patients", "CRC": "slides", "Salzburg": "textures"}
"""What the groups of images are, in the sets that have them."""

_TILES = 4
_WHOLE_SIDE = 256
"""Salzburg's images of this side or more are cut into 4 x 4 tiles; smaller ones are tiles already."""


@dataclass(frozen=True)
class Source:
    """A published set of images, and how to prepare it for a task.

    Attributes
    ----------
    images : str
        The paper's name of the set.
    root : Path
        The user's folder.
    size : int
        Side in pixels that all images are resized to.
    n_per_class : int or None
        Largest number of images of each class, taken evenly over the set; None for all.
    binary : bool
        Whether the labels are those of the paper's binary task.
    by_image : bool
        Whether images of one patient, slide or texture may be in different parts of a split.
    """

    images: str
    root: Path
    size: int
    n_per_class: int | None
    binary: bool
    by_image: bool = False


def split_published(source: Source, seed: int) -> SplitData:
    """Split a published set with a seed, class by class with groups kept together."""
    return split_images(collection_of(source), seed)


@lru_cache(maxsize=4)
def collection_of(source: Source) -> ImageCollection:
    """Return the prepared images of a set; `check_source` gives the warnings about incomplete copies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        images = PUBLISHED[OPTIONS[source.images]].load(source.root, binary=source.binary)
    images = _resize(images, source)
    if source.by_image:
        images.groups = None
    return images if source.n_per_class is None else limit_per_class(images, source.n_per_class)


def check_source(source: Source, seeds: range) -> list[str]:
    """Raise an error if a folder cannot be used; else return the warnings about it.

    Every header is read and every split is made before anything is trained.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        PUBLISHED[OPTIONS[source.images]].load(source.root, binary=source.binary)
    images = collection_of(source)
    try:
        images.pixel_format()
        for seed in seeds:
            split_indices(images, seed)
    except ValueError as error:
        raise ValueError(f"{source.images}: {error}") from error
    return [str(warning.message) for warning in caught]


def leak_sentence(source: Source, seeds: range) -> str:
    """Return a sentence, to follow the name of a set, about groups with images in more than one part of a split."""
    groups = collection_of(replace(source, by_image=False)).groups
    if groups is None:
        return "whether a patient is in more than one part of a split cannot be checked: the set has no patients."
    images, name = collection_of(source), GROUPS[source.images]
    n_groups, n_shared = len(set(groups)), max(_n_shared(groups, split_indices(images, seed)) for seed in seeds)
    if n_shared == 0:
        return f"none of its {n_groups} {name} is in more than one part of a split."
    return (
        f"up to {n_shared} of its {n_groups} {name} are in more than one part of a split, so that test accuracies"
        " are too good."
    )


def _n_shared(groups: np.ndarray, split: Split) -> int:
    counts = Counter(group for rows in (split.train, split.validation, split.test) for group in set(groups[rows]))
    return sum(count > 1 for count in counts.values())


def digest_of_source(source: Source) -> str:
    """Return a digest of the names, sizes and labels of files and of the values of `source`.

    It does not depend on the folder, nor on the content of files of the same size: reading all of a large set would
    take minutes before every run.
    """
    images = collection_of(source)
    files = [(os.path.relpath(path, source.root), os.path.getsize(path)) for path in images.paths]
    values = [(name, value) for name, value in asdict(source).items() if name != "root"]
    return fingerprint(None, [repr(files), repr(np.asarray(images.labels).tolist()), repr(values)])


def limit_per_class(images: ImageCollection, n_per_class: int) -> ImageCollection:
    """Return at most `n_per_class` images of each class, taken evenly over the collection."""
    labels = np.asarray(images.labels)
    selected = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        evenly = np.linspace(0, len(members) - 1, min(n_per_class, len(members))).round().astype(int)
        selected.append(members[evenly])
    return images.subset(np.sort(np.concatenate(selected)))


def _resize(images: ImageCollection, source: Source) -> ImageCollection:
    if source.images == "Salzburg" and images.sizes().min() >= _WHOLE_SIDE:
        return images.resized(_TILES * source.size).tiled(source.size)
    return images.resized(source.size)
