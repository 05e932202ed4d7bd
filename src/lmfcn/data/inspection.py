"""What a collection holds, and whether it is fit for training."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lmfcn.data.arrays import SMALLEST_SIDE
from lmfcn.data.collections import ImageCollection
from lmfcn.data.images import ImageError, ImageInfo
from lmfcn.data.leaks import Duplicates, describe_groups, find_duplicates
from lmfcn.data.store import in_parallel
from lmfcn.progress import item_progress

_IMBALANCE = 10


@dataclass(frozen=True)
class Inspection:
    """The findings about a collection.

    Attributes
    ----------
    n_images : int
    classes : dict
        Number of readable images of each label.
    sizes, forms, formats : Counter
        How many images have which height and width, channels and pixels, file format.
    groups_per_class : dict or None
    split : Counter or None
    unreadable : list of ImageError
    duplicates : list of str
        Groups of files that are the same or nearly the same, described.
    problems : list of str
        What makes training impossible.
    doubts : list of str
        What may make its result misleading.
    """

    n_images: int
    classes: dict[str, int]
    sizes: Counter[str]
    forms: Counter[str]
    formats: Counter[str]
    groups_per_class: dict[str, int] | None
    split: Counter[str] | None
    unreadable: list[ImageError]
    duplicates: list[str]
    problems: list[str]
    doubts: list[str]

    def __str__(self) -> str:
        """Say it in a few lines."""
        counts = ", ".join(f"{label} ({count})" for label, count in self.classes.items())
        lines = [f"{self.n_images} images; classes: {counts or 'none'}"]
        for title, found in (("sizes", self.sizes), ("channels", self.forms), ("formats", self.formats)):
            lines.append(f"{title}: " + ", ".join(f"{name} ({count})" for name, count in found.most_common(8)))
        return "\n".join([*lines, *self.doubts, *self.problems])

    @property
    def fit_for_training(self) -> bool:
        """Whether nothing stands in the way of training."""
        return not self.problems


def inspect(collection: ImageCollection, *, pixels: bool = True, verbose: bool = False) -> Inspection:
    """Look at every file of a collection, one at a time.

    Parameters
    ----------
    collection : ImageCollection
    pixels : bool, default=True
        Whether to decode the images, which finds damaged files and duplicates; else only headers are read.
    verbose : bool, default=False
        Show a progress bar.
    """
    infos: dict[int, ImageInfo] = {}
    unreadable: list[ImageError] = []
    with item_progress("Reading headers", len(collection), visible=verbose) as advance:
        for position, result in enumerate(in_parallel(collection.info, range(len(collection)))):
            if isinstance(result, ImageError):
                unreadable.append(result)
            else:
                infos[position] = result
            advance()
    sound = collection.subset(list(infos)) if infos else None
    duplicates = Duplicates([], [], [])
    if pixels and sound is not None:
        duplicates = find_duplicates(sound, verbose=verbose)
        unreadable += duplicates.unreadable
    return _judge(collection, sound, list(infos.values()), unreadable, duplicates)


def _judge(
    collection: ImageCollection,
    sound: ImageCollection | None,
    infos: list[ImageInfo],
    unreadable: list[ImageError],
    duplicates: Duplicates,
) -> Inspection:
    labels = np.array([]) if sound is None or sound.labels is None else sound.labels
    classes = {str(label): int(count) for label, count in zip(*np.unique(labels, return_counts=True), strict=True)}
    groups = None if sound is None or sound.groups is None else _groups_per_class(labels, sound.groups)
    forms = Counter(f"{info.channels} x {info.pixels}" for info in infos)
    return Inspection(
        n_images=len(collection),
        classes=classes,
        sizes=Counter(f"{info.height}x{info.width}" for info in infos),
        forms=forms,
        formats=Counter(info.format for info in infos),
        groups_per_class=groups,
        split=None if collection.split is None else Counter(map(str, collection.split)),
        unreadable=unreadable,
        duplicates=[] if sound is None else describe_groups(sound, duplicates),
        problems=_problems(classes, forms, infos, unreadable),
        doubts=_doubts(classes, groups, labels, duplicates),
    )


def _problems(
    classes: dict[str, int], forms: Counter[str], infos: list[ImageInfo], unreadable: list[ImageError]
) -> list[str]:
    problems = []
    if unreadable:
        problems.append(f"{len(unreadable)} files cannot be read; repair or remove them.")
    if len(classes) < 2:
        problems.append(f"There must be at least two classes, but there is {len(classes)}.")
    problems += [f"Class {name!r} has {n} images; at least 3 are needed." for name, n in classes.items() if n < 3]
    if len(forms) > 1:
        problems.append(f"Images differ in channels or depth ({', '.join(forms)}); give color='grey' or 'rgb'.")
    n_small = sum(min(info.height, info.width) < SMALLEST_SIDE for info in infos)
    if n_small:
        problems.append(f"{n_small} images are smaller than {SMALLEST_SIDE}x{SMALLEST_SIDE} pixels.")
    return problems


def _doubts(
    classes: dict[str, int], groups: dict[str, int] | None, labels: np.ndarray, duplicates: Duplicates
) -> list[str]:
    doubts = []
    if len(classes) > 1 and max(classes.values()) > _IMBALANCE * min(classes.values()):
        doubts.append(f"The largest class has more than {_IMBALANCE} times the images of the smallest.")
    if groups is not None:
        doubts += [f"All images of class {name!r} are in one group." for name, n in groups.items() if n == 1]
    groups_of_same = duplicates.all_groups
    if groups_of_same:
        count = "1 group" if len(groups_of_same) == 1 else f"{len(groups_of_same)} groups"
        doubts.append(f"Images that are the same or nearly the same: {duplicates.n_images} in {count}.")
    n_unlike = sum(len(np.unique(labels[list(group)])) > 1 for group in groups_of_same) if len(labels) else 0
    if n_unlike:
        doubts.append(f"Of these groups, {n_unlike} {'has' if n_unlike == 1 else 'have'} different labels.")
    return doubts


def _groups_per_class(labels: np.ndarray, groups: np.ndarray) -> dict[str, int]:
    return {str(label): len(np.unique(groups[labels == label])) for label in np.unique(labels)}
