"""What would make a test set lie: the same image, nearly the same image or the same group on two sides."""

import hashlib
import warnings
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from lmfcn.data.collections import ImageCollection
from lmfcn.data.framing import resize_image
from lmfcn.data.images import ImageError
from lmfcn.data.splits import Split
from lmfcn.data.store import in_parallel
from lmfcn.progress import item_progress

THUMBNAIL, COARSE = 32, 8
_BANDS, _BAND_BITS = 4, 16
_NEAR = _BANDS - 1  # bits by which near-duplicates may differ: one band of bits is then still the same
_ALIKE = 0.9  # correlation of the details that confirms them

Pair = tuple[int, int]


@dataclass(frozen=True)
class Fingerprints:
    """Hashes by which images are compared.

    Attributes
    ----------
    pixels : list of bytes
        Hash of form and pixels of each image.
    files : list of bytes
        Hash of each file, or of the pixels where there is no file.
    perceptual : array of uint64 (n,)
        64 bits that small changes (compression, brightness) leave nearly alone.
    details : array (n, THUMBNAIL * THUMBNAIL)
        A thumbnail without its coarse brightness, which many images share, scaled to length 1.
    """

    pixels: list[bytes]
    files: list[bytes]
    perceptual: np.ndarray
    details: np.ndarray


@dataclass(frozen=True)
class Duplicates:
    """Pairs of positions in a collection; each pair is listed once, under the strongest thing it shares."""

    identical_files: list[Pair]
    identical_pixels: list[Pair]
    near_duplicates: list[Pair]


def find_duplicates(collection: ImageCollection, *, verbose: bool = False) -> Duplicates:
    """Compare all images of a collection with each other, without holding them in memory."""
    prints = fingerprints(collection, verbose=verbose)
    files = _equal_pairs(prints.files)
    pixels = _equal_pairs(prints.pixels) - files
    near = _near_pairs(prints) - files - pixels
    return Duplicates(sorted(files), sorted(pixels), sorted(near))


def fingerprints(collection: ImageCollection, *, verbose: bool = False) -> Fingerprints:
    """Compute the hashes of every image."""
    rows = []
    with item_progress("Comparing images", len(collection), visible=verbose) as advance:
        for result in in_parallel(lambda position: _fingerprint(collection, position), range(len(collection))):
            if isinstance(result, ImageError):
                raise result
            rows.append(result)
            advance()
    files, pixels, perceptual, details = zip(*rows, strict=True)
    return Fingerprints(list(pixels), list(files), np.array(perceptual, dtype=np.uint64), np.stack(details))


def _fingerprint(collection: ImageCollection, position: int) -> tuple[bytes, bytes, int, np.ndarray]:
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
    return files, pixels, perceptual, detail / max(length, 1e-6)


def _equal_pairs(keys: list[bytes]) -> set[Pair]:
    places = defaultdict(list)
    for position, key in enumerate(keys):
        places[key].append(position)
    return {pair for members in places.values() if len(members) > 1 for pair in combinations(members, 2)}


def _near_pairs(prints: Fingerprints) -> set[Pair]:
    """Pairs whose hashes differ in few bits and whose details correlate."""
    pairs: set[Pair] = set()
    for band in range(_BANDS):
        part = (prints.perceptual >> np.uint64(band * _BAND_BITS)) & np.uint64(2**_BAND_BITS - 1)
        order = np.argsort(part, kind="stable")
        starts = np.flatnonzero(np.diff(part[order], prepend=np.uint64(2**63)))
        for members in np.split(order, starts[1:]):
            pairs |= _confirmed(members, prints)
    return pairs


def _confirmed(members: np.ndarray, prints: Fingerprints) -> set[Pair]:
    pairs: set[Pair] = set()
    for i, first in enumerate(members[:-1]):
        others = members[i + 1 :]
        differing = np.bitwise_count(prints.perceptual[first] ^ prints.perceptual[others])
        others = others[differing <= _NEAR]
        alike = prints.details[others] @ prints.details[first] > _ALIKE
        pairs |= {(int(min(first, other)), int(max(first, other))) for other in others[alike]}
    return pairs


class LeakError(ValueError):
    """A split that would make the test lie."""


class LeakWarning(UserWarning):
    """A split that may make the test lie."""


def check_split(collection: ImageCollection, parts: Split, *, verbose: bool = False) -> Duplicates:
    """Look for what two sides of a split share.

    Groups on two sides are an error. Identical and nearly identical images on two sides are a warning with
    the pairs; they are also returned.
    """
    side = np.full(len(collection), -1)
    for number, indices in enumerate((parts.train, parts.validation, parts.test)):
        side[indices] = number
    if collection.groups is not None:
        _check_groups_apart(collection.groups, side)
    found = find_duplicates(collection, verbose=verbose)
    across = Duplicates(
        *(
            [pair for pair in pairs if _apart(side, pair)]
            for pairs in (found.identical_files, found.identical_pixels, found.near_duplicates)
        )
    )
    lines = [
        f"{collection.paths[first]} and {collection.paths[second]} ({what})"
        for what, pairs in (
            ("identical files", across.identical_files),
            ("identical pixels", across.identical_pixels),
            ("nearly identical", across.near_duplicates),
        )
        for first, second in pairs
    ]
    if lines:
        more = f"\n  ... and {len(lines) - 20} more" if len(lines) > 20 else ""
        warnings.warn(
            "The same image may be on two sides of the split:\n  " + "\n  ".join(lines[:20]) + more,
            LeakWarning,
            stacklevel=2,
        )
    return across


def _apart(side: np.ndarray, pair: Pair) -> bool:
    first, second = side[list(pair)]
    return bool(first != second and first >= 0 and second >= 0)


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
