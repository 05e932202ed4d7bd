"""Inspect a collection, find duplicate images, and find leaks between the parts of a split."""

import copy
import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lmfcn.data.arrays import SMALLEST_SIDE
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Preprocessing
from lmfcn.data.image_files import CollectionError, ImageError, ImageInfo
from lmfcn.data.image_store import map_in_threads
from lmfcn.data.near_duplicates import N_WORDS, Group, group_near, join_groups, perceptual_hash
from lmfcn.data.splits import Split
from lmfcn.util.progress import item_progress

KEPT_TOGETHER = "They stay on one side of every split."
"""What happens to near-identical images, unless it is switched off."""

MAY_BE_SPLIT = "They may be on both sides of a split, so that accuracies may be too good."
"""The same if it is switched off."""

_MAX_NAMED = 3  # files of a group in a message; the others are counted


@dataclass(frozen=True)
class Duplicates:
    """Groups of duplicate images, as ascending positions in a collection.

    The memory for groups grows linearly with the number of images; that for pairs would grow quadratically.

    Attributes
    ----------
    identical_files : list of tuple of int
        Images whose files have the same content.
    identical_pixels : list of tuple of int
        Images with the same pixels, in files that are not all identical.
    near_duplicates : list of tuple of int
        Images that are linked by near-duplicates. Identical images are in the same group, and also in a group of
        `identical_files` or `identical_pixels`.
    unreadable : list of ImageError
        Files that could not be compared.
    blank : set of int
        Images without any structure, such as constant ones. Equal ones need not have the same source, so that a split
        may separate them.
    """

    identical_files: list[Group]
    identical_pixels: list[Group]
    near_duplicates: list[Group]
    unreadable: list[ImageError] = field(default_factory=list)
    blank: frozenset[int] = frozenset()

    @property
    def all_groups(self) -> list[Group]:
        """All groups: identical files, identical pixels, near-duplicates."""
        return self.identical_files + self.identical_pixels + self.near_duplicates

    @property
    def connected(self) -> list[Group]:
        """Groups of images that are linked in any way, each image in one of them: what a split keeps together."""
        return sorted(group for group in self.largest_groups if group[0] not in self.blank)

    @property
    def largest_groups(self) -> list[Group]:
        """All groups that are no part of another."""
        linked = {position for group in self.near_duplicates for position in group}
        identical = [group for group in self.identical_files + self.identical_pixels if group[0] not in linked]
        return identical + self.near_duplicates

    @property
    def n_images(self) -> int:
        """Number of images that a split keeps together with others."""
        return sum(map(len, self.connected))

    @property
    def sentence(self) -> str:
        """How many images are near-identical to another, in the words of every command; empty if there are none."""
        if not self.connected:
            return ""
        groups = "1 group" if len(self.connected) == 1 else f"{len(self.connected)} groups"
        return f"Images that are the same as another or nearly the same: {self.n_images} in {groups}."

    def keep_together(self, collection: ImageCollection) -> ImageCollection:
        """Return a collection whose groups also hold these images together, so that no split separates them."""
        joined = copy.copy(collection)
        joined.groups = join_groups(collection.groups, self.connected, len(collection))
        return joined


@dataclass(frozen=True)
class _Fingerprint:
    """Hashes of the file and of the pixels of an image, and its perceptual hash (5,)."""

    file: bytes
    pixels: bytes
    perceptual: np.ndarray


@dataclass
class _IdenticalImages:
    """Positions of images with the same pixels, hashes of their files, and the fingerprint of the first."""

    first: _Fingerprint
    positions: list[int] = field(default_factory=list)
    files: set[bytes] = field(default_factory=set)


def find_duplicates(collection: ImageCollection, *, verbose: bool = False) -> Duplicates:
    """Find identical and nearly identical images of a collection, without holding the images in memory."""
    by_pixels: dict[bytes, _IdenticalImages] = {}
    unreadable: list[ImageError] = []
    with item_progress("Comparing images", len(collection), visible=verbose) as advance:
        results = map_in_threads(lambda position: _fingerprint(collection, position), range(len(collection)))
        for position, result in enumerate(results):
            if isinstance(result, ImageError):
                unreadable.append(result)
            else:
                identical = by_pixels.setdefault(result.pixels, _IdenticalImages(result))
                identical.positions.append(position)
                identical.files.add(result.file)
            advance()
    return _make_duplicates(list(by_pixels.values()), unreadable)


def _make_duplicates(distinct: list[_IdenticalImages], unreadable: list[ImageError]) -> Duplicates:
    """Return groups of positions from images that differ in their pixels, each with its copies."""
    repeated = [images for images in distinct if len(images.positions) > 1]
    hashes = np.array([images.first.perceptual for images in distinct], dtype=np.uint64).reshape(-1, N_WORDS)
    return Duplicates(
        identical_files=[tuple(images.positions) for images in repeated if len(images.files) == 1],
        identical_pixels=[tuple(images.positions) for images in repeated if len(images.files) > 1],
        near_duplicates=[
            tuple(sorted(position for number in group for position in distinct[number].positions))
            for group in group_near(hashes)
        ],
        unreadable=unreadable,
        blank=frozenset(
            position for images in distinct if not images.first.perceptual[1:].any() for position in images.positions
        ),
    )


def _fingerprint(collection: ImageCollection, position: int) -> _Fingerprint:
    image = collection[position]
    pixels = hashlib.sha256(repr((image.shape, image.dtype.str)).encode() + image.tobytes()).digest()
    path = collection.file_of(position)
    file_hash = pixels
    if path is not None:
        with open(path, "rb") as file:
            file_hash = hashlib.file_digest(file, "sha256").digest()
    return _Fingerprint(file_hash, pixels, perceptual_hash(image))


class LeakError(ValueError):
    """A group of images is in more than one part of a split, which would make test results too good."""


class LeakWarning(UserWarning):
    """The same image may be in more than one part of a split, which would make test results too good."""


def check_split(
    collection: ImageCollection, parts: Split, found: Duplicates | None = None, *, verbose: bool = False
) -> Duplicates:
    """Check that the parts of a split share no group and no image.

    `found` are the duplicates of the collection, if they are known. A group in two parts raises a `LeakError`.
    Identical and nearly identical images in two parts cause a `LeakWarning` that names the first of them.

    Returns
    -------
    Duplicates
        All groups of duplicates that are in two parts.
    """
    part_numbers = _part_numbers(len(collection), parts)
    if collection.groups is not None:
        _check_groups_apart(collection.groups, part_numbers)
    if found is None:
        found = find_duplicates(collection, verbose=verbose)
    if found.unreadable:
        raise CollectionError(found.unreadable)
    across = _across(found, part_numbers)
    lines = describe_groups(collection, across)
    if lines:
        more = f"\n  ... and {len(lines) - 20} more" if len(lines) > 20 else ""
        warnings.warn(
            "The same image may be in two parts of the split:\n  " + "\n  ".join(lines[:20]) + more,
            LeakWarning,
            stacklevel=2,
        )
    return across


def duplicates_across(found: Duplicates, parts: Split, n_images: int) -> Duplicates:
    """Return the groups of duplicates that are in two parts of a split, without unused images."""
    return _across(found, _part_numbers(n_images, parts))


def describe_groups(collection: ImageCollection, duplicates: Duplicates) -> list[str]:
    """Return one line per group of duplicates: its first files, and how they are linked.

    Groups with different labels come first, and name them: at least one of these labels is wrong.
    """
    kinds = (
        ("identical files", duplicates.identical_files),
        ("identical pixels", duplicates.identical_pixels),
        ("nearly identical", duplicates.near_duplicates),
    )
    shown = set(duplicates.largest_groups)
    lines: dict[bool, list[str]] = {True: [], False: []}
    for what, groups in kinds:
        for group in filter(shown.__contains__, groups):
            labels = _labels_of(collection, group)
            told = f"{what}, different labels: {', '.join(labels)}" if len(labels) > 1 else what
            lines[len(labels) > 1].append(f"{_names(collection.paths, group)} ({told})")
    return lines[True] + lines[False]


def _labels_of(collection: ImageCollection, group: Group) -> list[str]:
    """Return the labels of a group in the order of its images, each once."""
    labels = [] if collection.labels is None else np.asarray(collection.labels)[list(group)].tolist()
    return [str(label) for label in dict.fromkeys(labels)]


def _names(paths: Sequence[str], group: Group) -> str:
    names = [paths[position] for position in group[:_MAX_NAMED]]
    if len(group) > _MAX_NAMED:
        return f"{', '.join(names)} and {len(group) - _MAX_NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _part_numbers(n_images: int, parts: Split) -> np.ndarray:
    """Return the part (n,) of every image: 0 train, 1 validation, 2 test, -1 unused."""
    part_numbers = np.full(n_images, -1)
    for number, indices in enumerate((parts.train, parts.validation, parts.test)):
        part_numbers[indices] = number
    return part_numbers


def _across(found: Duplicates, part_numbers: np.ndarray) -> Duplicates:
    return Duplicates(
        identical_files=_separated(found.identical_files, part_numbers),
        identical_pixels=_separated(found.identical_pixels, part_numbers),
        near_duplicates=_separated(found.near_duplicates, part_numbers),
        blank=found.blank,
    )


def _separated(groups: Iterable[Group], part_numbers: np.ndarray) -> list[Group]:
    """Return the used images of the groups that are in more than one part."""
    used = [tuple(position for position in group if part_numbers[position] >= 0) for group in groups]
    return [group for group in used if len({int(part_numbers[position]) for position in group}) > 1]


def _check_groups_apart(groups: np.ndarray, part_numbers: np.ndarray) -> None:
    used = part_numbers >= 0
    parts_of = defaultdict(set)
    for group, number in zip(groups[used].tolist(), part_numbers[used].tolist(), strict=True):
        parts_of[group].add(number)
    shared = sorted((group for group, numbers in parts_of.items() if len(numbers) > 1), key=str)
    if shared:
        more = f" and {len(shared) - 5} more" if len(shared) > 5 else ""
        raise LeakError(
            f"{len(shared)} groups are in more than one part of the split: {', '.join(map(str, shared[:5]))}{more};"
            " split with groups=collection.groups."
        )


_IMBALANCE = 10  # ratio of class sizes above which there is a warning


@dataclass(frozen=True)
class Inspection:
    """Contents, duplicates and problems of a collection.

    Attributes
    ----------
    n_images : int
    classes : dict
        Number of readable images of each label.
    sizes, forms, formats : Counter
        Number of images by width and height, by channels and kind of pixels, and by file format.
    groups_per_class : dict or None
    split : Counter or None
    unreadable : list of ImageError
    duplicates : list of str
        One line per group of files that are identical or nearly identical.
    problems : list of str
        Reasons why the collection cannot be used for training.
    warnings : list of str
        Reasons why results of training may be misleading.
    n_near_identical : int
        Number of images that are the same as another or nearly the same.
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
    warnings: list[str]
    n_near_identical: int = 0

    def __str__(self) -> str:
        """Return a summary in a few lines."""
        counts = ", ".join(f"{label} ({count})" for label, count in self.classes.items())
        lines = [f"{self.n_images} images; classes: {counts or 'none'}"]
        for title, found in (
            ("sizes, width x height", self.sizes),
            ("channels", self.forms),
            ("formats", self.formats),
        ):
            lines.append(f"{title}: " + ", ".join(f"{name} ({count})" for name, count in found.most_common(8)))
        return "\n".join([*lines, *self.warnings, *self.problems])

    @property
    def fit_for_training(self) -> bool:
        """Whether the collection can be used for training."""
        return not self.problems


def inspect(collection: ImageCollection, *, pixels: bool = True, verbose: bool = False) -> Inspection:
    """Return what a collection holds, with unreadable files, duplicates and problems.

    Parameters
    ----------
    collection : ImageCollection
    pixels : bool, default=True
        Decode the images, which finds damaged files and duplicates; otherwise read only the headers.
    verbose : bool, default=False
        Show a progress bar.
    """
    infos: dict[int, ImageInfo] = {}
    unreadable: list[ImageError] = []
    with item_progress("Reading headers", len(collection), visible=verbose) as advance:
        for position, result in enumerate(map_in_threads(collection.info, range(len(collection)))):
            if isinstance(result, ImageError):
                unreadable.append(result)
            else:
                infos[position] = result
            advance()
    readable = collection.subset(list(infos)) if infos else None
    duplicates = Duplicates([], [], [])
    if pixels and readable is not None:
        duplicates = find_duplicates(readable, verbose=verbose)
        unreadable += duplicates.unreadable
    return _summarize(collection, readable, list(infos.values()), unreadable, duplicates)


def _summarize(
    collection: ImageCollection,
    readable: ImageCollection | None,
    infos: list[ImageInfo],
    unreadable: list[ImageError],
    duplicates: Duplicates,
) -> Inspection:
    labels = np.array([]) if readable is None or readable.labels is None else readable.labels
    classes = {str(label): int(count) for label, count in zip(*np.unique(labels, return_counts=True), strict=True)}
    groups = None if readable is None or readable.groups is None else _groups_per_class(labels, readable.groups)
    forms = Counter(f"{info.channels} x {info.pixels}" for info in infos)
    return Inspection(
        n_images=len(collection),
        classes=classes,
        sizes=Counter(f"{info.width}x{info.height}" for info in infos),
        forms=forms,
        formats=Counter(info.format for info in infos),
        groups_per_class=groups,
        split=None if collection.split is None else Counter(map(str, collection.split)),
        unreadable=unreadable,
        duplicates=[] if readable is None else describe_groups(readable, duplicates),
        problems=_find_problems(classes, infos, unreadable, collection.preprocessing),
        warnings=_find_warnings(classes, groups, labels, duplicates, None if readable is None else readable.split),
        n_near_identical=duplicates.n_images,
    )


def _find_problems(
    classes: dict[str, int], infos: list[ImageInfo], unreadable: list[ImageError], preprocessing: Preprocessing
) -> list[str]:
    problems = []
    if unreadable:
        files = "1 file" if len(unreadable) == 1 else f"{len(unreadable)} files"
        problems.append(f"{files} cannot be read; repair or remove them.")
    if len(classes) < 2:
        problems.append(f"There must be at least two classes, but there is {len(classes)}.")
    problems += [f"Class {name!r} has {n} images; at least 3 are needed." for name, n in classes.items() if n < 3]
    problems += _mixed_forms(infos, preprocessing.color)
    n_small = sum(min(info.height, info.width) < SMALLEST_SIDE for info in infos)
    if n_small and preprocessing.size is None:
        problems.append(f"{n_small} images are smaller than {SMALLEST_SIDE}x{SMALLEST_SIDE} pixels.")
    return problems


def _mixed_forms(infos: list[ImageInfo], color: str) -> list[str]:
    """Return a sentence if images differ in channels or depth after they are converted to the colour."""
    depths, channels = ({getattr(info, name) for info in infos} for name in ("pixels", "channels"))
    if len(depths) > 1:
        return [f"Images differ in depth ({', '.join(sorted(depths))}); convert them to one depth."]
    if len(channels) < 2 or (color != "keep" and channels <= {1, 3}):
        return []
    numbers = ", ".join(map(str, sorted(channels)))
    cure = "give color='grey' or 'rgb'" if channels == {1, 3} else "remove those that are neither grey nor RGB"
    return [f"Images differ in channels ({numbers}); {cure}."]


def _find_warnings(
    classes: dict[str, int],
    groups: dict[str, int] | None,
    labels: np.ndarray,
    duplicates: Duplicates,
    split: np.ndarray | None,
) -> list[str]:
    found = []
    if len(classes) > 1 and max(classes.values()) > _IMBALANCE * min(classes.values()):
        found.append(f"The largest class has more than {_IMBALANCE} times the images of the smallest.")
    if groups is not None:
        found += [f"All images of class {name!r} are in one group." for name, n in groups.items() if n == 1]
    if duplicates.connected:
        found.append(f"{duplicates.sentence} {KEPT_TOGETHER if split is None else _effect_of(split, duplicates)}")
    n_mixed = sum(len(np.unique(labels[list(group)])) > 1 for group in duplicates.largest_groups) if len(labels) else 0
    if n_mixed:
        found.append(f"Of the groups of duplicates, {n_mixed} {'has' if n_mixed == 1 else 'have'} different labels.")
    return found


def _effect_of(split: np.ndarray, duplicates: Duplicates) -> str:
    """Say what a given split, which is used as it is, does to near-identical images."""
    n_groups = sum(len(np.unique(split[list(group)])) > 1 for group in duplicates.connected)
    return f"The given split separates {n_groups or 'none'} of these groups."


def _groups_per_class(labels: np.ndarray, groups: np.ndarray) -> dict[str, int]:
    return {str(label): len(np.unique(groups[labels == label])) for label in np.unique(labels)}
