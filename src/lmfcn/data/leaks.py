"""What would make a test set lie: the same image, nearly the same image or the same group on two sides."""

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from lmfcn.data.collections import ImageCollection
from lmfcn.data.framing import resize_image
from lmfcn.data.images import ImageError
from lmfcn.data.store import in_parallel
from lmfcn.progress import item_progress

THUMBNAIL = 16
_BANDS, _BAND_BITS = 4, 16
_NEAR = _BANDS - 1  # bits by which near-duplicates may differ: one band of bits is then still the same
_ALIKE = 0.98  # correlation of the thumbnails that confirms them

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
    thumbnails : array (n, THUMBNAIL * THUMBNAIL)
        With mean 0 and length 1; a constant image has length 0.
    """

    pixels: list[bytes]
    files: list[bytes]
    perceptual: np.ndarray
    thumbnails: np.ndarray


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
    files, pixels, perceptual, thumbnails = zip(*rows, strict=True)
    return Fingerprints(list(pixels), list(files), np.array(perceptual, dtype=np.uint64), np.stack(thumbnails))


def _fingerprint(collection: ImageCollection, position: int) -> tuple[bytes, bytes, int, np.ndarray]:
    image = collection[position]
    pixels = hashlib.sha256(repr((image.shape, image.dtype.str)).encode() + image.tobytes()).digest()
    path = collection.file_of(position)
    files = pixels
    if path is not None:
        with open(path, "rb") as file:
            files = hashlib.file_digest(file, "sha256").digest()
    grey = image.astype(np.float32).mean(axis=2, keepdims=True)
    small = resize_image(grey, (THUMBNAIL, THUMBNAIL))[..., 0]
    steps = resize_image(grey, (8, 9))[..., 0]
    bits = (steps[:, 1:] > steps[:, :-1]).ravel()
    thumbnail = (small - small.mean()).ravel()
    length = float(np.linalg.norm(thumbnail))
    return files, pixels, int("".join("01"[bit] for bit in bits.astype(int)), 2), thumbnail / max(length, 1e-6)


def _equal_pairs(keys: list[bytes]) -> set[Pair]:
    places = defaultdict(list)
    for position, key in enumerate(keys):
        places[key].append(position)
    return {pair for members in places.values() if len(members) > 1 for pair in combinations(members, 2)}


def _near_pairs(prints: Fingerprints) -> set[Pair]:
    """Pairs whose hashes differ in few bits and whose thumbnails correlate."""
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
        alike = prints.thumbnails[others] @ prints.thumbnails[first] > _ALIKE
        pairs |= {(int(min(first, other)), int(max(first, other))) for other in others[alike]}
    return pairs
