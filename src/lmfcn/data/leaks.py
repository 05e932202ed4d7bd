"""What would make a test set lie: the same image, nearly the same image or the same group on two sides."""

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

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

Pair = tuple[int, int]


@dataclass(frozen=True)
class Duplicates:
    """Pairs of positions in a collection; each pair is listed once, under the strongest thing it shares.

    `unreadable` are the files that could not be compared.
    """

    identical_files: list[Pair]
    identical_pixels: list[Pair]
    near_duplicates: list[Pair]
    unreadable: list[ImageError] = field(default_factory=list)

    @property
    def all_pairs(self) -> list[Pair]:
        """All pairs, the surest first."""
        return self.identical_files + self.identical_pixels + self.near_duplicates


def find_duplicates(collection: ImageCollection, *, verbose: bool = False) -> Duplicates:
    """Compare all images of a collection with each other, without holding them in memory."""
    readable: list[int] = []
    rows = []
    unreadable: list[ImageError] = []
    with item_progress("Comparing images", len(collection), visible=verbose) as advance:
        results = in_parallel(lambda position: _fingerprint(collection, position), range(len(collection)))
        for position, result in enumerate(results):
            if isinstance(result, ImageError):
                unreadable.append(result)
            else:
                readable.append(position)
                rows.append(result)
            advance()
    if not rows:
        return Duplicates([], [], [], unreadable)
    file_hashes, pixel_hashes, perceptual, details = zip(*rows, strict=True)
    files = _equal_pairs(file_hashes)
    pixels = _equal_pairs(pixel_hashes) - files
    near = _near_pairs(np.array(perceptual, dtype=np.uint64), np.stack(details)) - files - pixels

    def in_collection(pairs: set[Pair]) -> list[Pair]:
        return sorted((readable[first], readable[second]) for first, second in pairs)

    return Duplicates(in_collection(files), in_collection(pixels), in_collection(near), unreadable)


def _fingerprint(collection: ImageCollection, position: int) -> tuple[bytes, bytes, int, np.ndarray]:
    """Return hashes of the file and of the pixels, 64 bits that small changes leave nearly alone, and the details.

    Details are a thumbnail without its coarse brightness, which many images share, scaled to length 1.
    """
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
    return files, pixels, perceptual, (detail / max(length, 1e-6)).astype(np.float16)


def _equal_pairs(keys: Sequence[bytes]) -> set[Pair]:
    places = defaultdict(list)
    for position, key in enumerate(keys):
        places[key].append(position)
    return {pair for members in places.values() if len(members) > 1 for pair in combinations(members, 2)}


def _near_pairs(perceptual: np.ndarray, details: np.ndarray) -> set[Pair]:
    """Pairs whose hashes differ in few bits and whose details correlate."""
    pairs: set[Pair] = set()
    for band in range(_BANDS):
        part = (perceptual >> np.uint64(band * _BAND_BITS)) & np.uint64(2**_BAND_BITS - 1)
        order = np.argsort(part, kind="stable")
        starts = np.flatnonzero(np.diff(part[order])) + 1
        for members in np.split(order, starts):
            for i, first in enumerate(members[:-1]):
                others = members[i + 1 :]
                others = others[np.bitwise_count(perceptual[first] ^ perceptual[others]) <= _NEAR]
                correlation = details[others].astype(np.float32) @ details[first].astype(np.float32)
                alike = others[correlation > _ALIKE]
                pairs |= {(int(min(first, other)), int(max(first, other))) for other in alike}
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
    side = _sides(len(collection), parts)
    if collection.groups is not None:
        _check_groups_apart(collection.groups, side)
    found = find_duplicates(collection, verbose=verbose)
    if found.unreadable:
        raise CollectionError(found.unreadable)
    across = _across(found, side)
    lines = describe_pairs(collection, across)
    if lines:
        more = f"\n  ... and {len(lines) - 20} more" if len(lines) > 20 else ""
        warnings.warn(
            "The same image may be on two sides of the split:\n  " + "\n  ".join(lines[:20]) + more,
            LeakWarning,
            stacklevel=2,
        )
    return across


def pairs_across(found: Duplicates, parts: Split, n_images: int) -> Duplicates:
    """Return the pairs among those of a collection that a split puts on two sides."""
    return _across(found, _sides(n_images, parts))


def describe_pairs(collection: ImageCollection, duplicates: Duplicates) -> list[str]:
    """Say which files are duplicates of which, and in what way."""
    kinds = (
        ("identical files", duplicates.identical_files),
        ("identical pixels", duplicates.identical_pixels),
        ("nearly identical", duplicates.near_duplicates),
    )
    paths = collection.paths
    return [f"{paths[first]} and {paths[second]} ({what})" for what, pairs in kinds for first, second in pairs]


def _sides(n_images: int, parts: Split) -> np.ndarray:
    """Return the number (n,) of the part of every image, -1 for none."""
    side = np.full(n_images, -1)
    for number, indices in enumerate((parts.train, parts.validation, parts.test)):
        side[indices] = number
    return side


def _across(found: Duplicates, side: np.ndarray) -> Duplicates:
    return Duplicates(
        [pair for pair in found.identical_files if _apart(side, pair)],
        [pair for pair in found.identical_pixels if _apart(side, pair)],
        [pair for pair in found.near_duplicates if _apart(side, pair)],
    )


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
