"""What would make a test set lie: the same image, nearly the same image or the same group on two sides."""

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lmfcn.data.collections import ImageCollection
from lmfcn.data.framing import resize_image
from lmfcn.data.images import CollectionError, ImageError
from lmfcn.data.splits import Split
from lmfcn.data.store import in_parallel
from lmfcn.progress import item_progress

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
        results = in_parallel(lambda position: _fingerprint(collection, position), range(len(collection)))
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


def groups_across(found: Duplicates, parts: Split, n_images: int) -> Duplicates:
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
