"""The user's own images: opened, checked, divided, and summed up before anything is trained on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmfcn.data.arrays import check_smallest_side
from lmfcn.data.collections import ImageCollection
from lmfcn.data.framing import Color
from lmfcn.data.images import CollectionError
from lmfcn.data.inspection import Inspection
from lmfcn.data.leaks import describe_groups, find_duplicates, groups_across
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import Split, split
from lmfcn.experiments.tasks import Parts, parts_at

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
    images.form()
    height, width = images.sizes().min(axis=0).tolist()
    check_smallest_side(height, width)
    duplicates = find_duplicates(images, verbose=verbose)
    if duplicates.unreadable:
        raise CollectionError(duplicates.unreadable)
    n_leaks = [len(groups_across(duplicates, parts, len(images)).all_groups) for parts in divisions]
    size = None if images.frame.size is None else images.frame.size[0]
    return DataSummary(images.summary(), size, describe_groups(images, duplicates), n_leaks)
