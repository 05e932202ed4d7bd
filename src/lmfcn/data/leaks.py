"""Inspect a collection: what it holds, duplicates, and what would leak between training and test."""

import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lmfcn.data.arrays import SMALLEST_SIDE
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import resize_image
from lmfcn.data.image_files import CollectionError, ImageError, ImageInfo
from lmfcn.data.image_store import map_in_threads
from lmfcn.data.splits import Split
from lmfcn.util.progress import item_progress

THUMBNAIL, COARSE = 32, 8
_BANDS, _BAND_BITS = 4, 16
_NEAR = _BANDS - 1  # bits by which near-duplicates may differ: one band of bits is then still the same
_ALIKE = 0.9  # correlation of the details that confirms them
_BLOCK = 256  # images that are compared with as many others at once
_NAMED = 3  # files of a group that are named; the others are counted

Group = tuple[int, ...]


@dataclass(frozen=True)
class Duplicates:
    """Groups of positions in a collection, each in ascending order.

    Groups take memory in proportion to the images, where pairs would take its square.

    Attributes
    ----------
    identical_files : list of tuple of int
        Images whose files have the same content.
    identical_pixels : list of tuple of int
        Images with the same pixels, not all of them in identical files.
    near_duplicates : list of tuple of int
        Images each of which is nearly the same as another one of its group. Identical images are in it together, and
        in a group of their own above.
    unreadable : list of ImageError
        Files that could not be compared.
    """

    identical_files: list[Group]
    identical_pixels: list[Group]
    near_duplicates: list[Group]
    unreadable: list[ImageError] = field(default_factory=list)

    @property
    def all_groups(self) -> list[Group]:
        """All groups, the surest first."""
        return self.identical_files + self.identical_pixels + self.near_duplicates

    @property
    def n_images(self) -> int:
        """Number of images that are in a group."""
        return len({position for group in self.all_groups for position in group})


@dataclass(frozen=True)
class _Fingerprint:
    """Hashes of the file and the pixels of an image, and what stays nearly the same when it changes a little.

    `perceptual` has 64 bits. `details` is a thumbnail without its coarse brightness, which many images share, scaled
    to length 1.
    """

    file: bytes
    pixels: bytes
    perceptual: int
    details: np.ndarray


@dataclass
class _Same:
    """Positions of images with the same pixels, hashes of their files, and the fingerprint of the first."""

    first: _Fingerprint
    positions: list[int] = field(default_factory=list)
    files: set[bytes] = field(default_factory=set)


def find_duplicates(collection: ImageCollection, *, verbose: bool = False) -> Duplicates:
    """Compare all images of a collection with each other, without holding them in memory."""
    by_pixels: dict[bytes, _Same] = {}
    unreadable: list[ImageError] = []
    with item_progress("Comparing images", len(collection), visible=verbose) as advance:
        results = map_in_threads(lambda position: _fingerprint(collection, position), range(len(collection)))
        for position, result in enumerate(results):
            if isinstance(result, ImageError):
                unreadable.append(result)
            else:
                same = by_pixels.setdefault(result.pixels, _Same(result))
                same.positions.append(position)
                same.files.add(result.file)
            advance()
    return _duplicates(list(by_pixels.values()), unreadable)


def _duplicates(distinct: list[_Same], unreadable: list[ImageError]) -> Duplicates:
    """Sort images that differ in their pixels, each with its copies, into groups."""
    repeated = [same for same in distinct if len(same.positions) > 1]
    return Duplicates(
        identical_files=[tuple(same.positions) for same in repeated if len(same.files) == 1],
        identical_pixels=[tuple(same.positions) for same in repeated if len(same.files) > 1],
        near_duplicates=[
            tuple(sorted(position for number in group for position in distinct[number].positions))
            for group in _near_groups([same.first for same in distinct])
        ],
        unreadable=unreadable,
    )


def _fingerprint(collection: ImageCollection, position: int) -> _Fingerprint:
    image = collection[position]
    pixels = hashlib.sha256(repr((image.shape, image.dtype.str)).encode() + image.tobytes()).digest()
    path = collection.file_of(position)
    files = pixels
    if path is not None:
        with open(path, "rb") as file:
            files = hashlib.file_digest(file, "sha256").digest()
    grey = image.astype(np.float32).mean(axis=2, keepdims=True)
    small = resize_image(grey, (THUMBNAIL, THUMBNAIL))
    coarse = resize_image(resize_image(small, (COARSE, COARSE)), (THUMBNAIL, THUMBNAIL))
    steps = resize_image(grey, (8, 9))[..., 0]
    bits = (steps[:, 1:] > steps[:, :-1]).ravel()
    detail = (small - coarse).ravel()
    length = float(np.linalg.norm(detail))
    perceptual = int.from_bytes(np.packbits(bits).tobytes(), "big")
    # Half precision tells images apart as well, and a hundred thousand thumbnails take half the memory.
    return _Fingerprint(files, pixels, perceptual, (detail / max(length, 1e-6)).astype(np.float16))


def _near_groups(images: Sequence[_Fingerprint]) -> list[list[int]]:
    """Return groups of numbers of images that are linked by near-duplicates, by their first member."""
    textured = [number for number, image in enumerate(images) if image.details.any()]  # others correlate with nothing
    if not textured:
        return []
    perceptual = np.array([images[number].perceptual for number in textured], dtype=np.uint64)
    details = np.stack([images[number].details for number in textured])
    labels = np.arange(len(textured))
    for first, second in _candidates(perceptual):
        _join_alike(labels, first, second, perceptual, details)
    groups = defaultdict(list)
    for number, label in zip(textured, labels.tolist(), strict=True):
        groups[label].append(number)
    return [members for members in groups.values() if len(members) > 1]


def _candidates(perceptual: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield blocks of indices whose hashes share a band of bits, to be compared with each other."""
    for band in range(_BANDS):
        part = (perceptual >> np.uint64(band * _BAND_BITS)) & np.uint64(2**_BAND_BITS - 1)
        order = np.argsort(part, kind="stable")
        starts = np.flatnonzero(np.diff(part[order])) + 1
        for members in np.split(order, starts):
            blocks = [members[start : start + _BLOCK] for start in range(0, len(members), _BLOCK)]
            if len(members) > 1:
                yield from ((first, second) for i, first in enumerate(blocks) for second in blocks[i:])


def _join_alike(
    labels: np.ndarray, first: np.ndarray, second: np.ndarray, perceptual: np.ndarray, details: np.ndarray
) -> None:
    """Give one label to images whose hashes differ in few bits and whose details correlate."""
    near = np.bitwise_count(perceptual[first, None] ^ perceptual[second]) <= _NEAR
    near &= labels[first, None] != labels[second]  # thousands of images that are alike are soon one group
    if not near.any():
        return
    correlation = details[first].astype(np.float32) @ details[second].astype(np.float32).T
    rows, columns = np.nonzero(near & (correlation > _ALIKE))
    for one, other in zip(first[rows].tolist(), second[columns].tolist(), strict=True):
        if labels[one] != labels[other]:
            labels[labels == labels[other]] = labels[one]


class LeakError(ValueError):
    """A split that would make the test lie."""


class LeakWarning(UserWarning):
    """A split that may make the test lie."""


def check_split(collection: ImageCollection, parts: Split, *, verbose: bool = False) -> Duplicates:
    """Look for what two sides of a split share.

    Groups of the collection on two sides are an error. Identical and nearly identical images on two sides are a
    warning that names some of them; all of them are returned.
    """
    side = _sides(len(collection), parts)
    if collection.groups is not None:
        _check_groups_apart(collection.groups, side)
    found = find_duplicates(collection, verbose=verbose)
    if found.unreadable:
        raise CollectionError(found.unreadable)
    across = _across(found, side)
    lines = describe_groups(collection, across)
    if lines:
        more = f"\n  ... and {len(lines) - 20} more" if len(lines) > 20 else ""
        warnings.warn(
            "The same image may be on two sides of the split:\n  " + "\n  ".join(lines[:20]) + more,
            LeakWarning,
            stacklevel=2,
        )
    return across


def duplicates_across(found: Duplicates, parts: Split, n_images: int) -> Duplicates:
    """Return the groups among those of a collection that a split puts on two sides, without unused images."""
    return _across(found, _sides(n_images, parts))


def describe_groups(collection: ImageCollection, duplicates: Duplicates) -> list[str]:
    """Say which files are duplicates of each other, and in what way; of many, the first are named."""
    kinds = (
        ("identical files", duplicates.identical_files),
        ("identical pixels", duplicates.identical_pixels),
        ("nearly identical", duplicates.near_duplicates),
    )
    paths = collection.paths
    return [f"{_names(paths, group)} ({what})" for what, groups in kinds for group in groups]


def _names(paths: Sequence[str], group: Group) -> str:
    names = [paths[position] for position in group[:_NAMED]]
    if len(group) > _NAMED:
        return f"{', '.join(names)} and {len(group) - _NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _sides(n_images: int, parts: Split) -> np.ndarray:
    """Return the number (n,) of the part of every image, -1 for none."""
    side = np.full(n_images, -1)
    for number, indices in enumerate((parts.train, parts.validation, parts.test)):
        side[indices] = number
    return side


def _across(found: Duplicates, side: np.ndarray) -> Duplicates:
    return Duplicates(
        _apart(found.identical_files, side), _apart(found.identical_pixels, side), _apart(found.near_duplicates, side)
    )


def _apart(groups: Iterable[Group], side: np.ndarray) -> list[Group]:
    """Return the used images of the groups that are on more than one side."""
    used = [tuple(position for position in group if side[position] >= 0) for group in groups]
    return [group for group in used if len({int(side[position]) for position in group}) > 1]


def _check_groups_apart(groups: np.ndarray, side: np.ndarray) -> None:
    used = side >= 0
    sides_of = defaultdict(set)
    for group, number in zip(groups[used].tolist(), side[used].tolist(), strict=True):
        sides_of[group].add(number)
    shared = sorted((group for group, sides in sides_of.items() if len(sides) > 1), key=str)
    if shared:
        more = f" and {len(shared) - 5} more" if len(shared) > 5 else ""
        raise LeakError(
            f"{len(shared)} groups are on more than one side of the split: {', '.join(map(str, shared[:5]))}{more};"
            " split with groups=collection.groups."
        )


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
        for position, result in enumerate(map_in_threads(collection.info, range(len(collection)))):
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
