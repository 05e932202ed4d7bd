"""Near-identical images: one definition, by perceptual hashes that can be stored without any pixel.

Two images are near-identical if both parts of their hashes agree: the coarse part (64 bits, the difference hash) in all
but 3 bits, and the detail part (256 bits) in all but 36, which is about a correlation of the details above 0.9.
Brightness, contrast, compression, size and slight noise hardly change a hash. Mirrored, turned and shifted copies are
not recognised, and blank images are near-identical to none.
"""

import base64
import binascii
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from lmfcn.data.arrays import SMALLEST_SIDE
from lmfcn.data.framing import resize_image

_THUMBNAIL_SIDE, _COARSE_SIDE = 32, 8
_N_BANDS, _BAND_BITS = 4, 16  # the 64 bits of the coarse part
_MAX_COARSE_BITS = _N_BANDS - 1  # at least one band of bits of near-identical images is then the same
_DETAIL_BITS = 256
_MAX_DETAIL_BITS = 36  # arccos(0.9) / pi of the bits differ, on average, if details correlate by 0.9
_SMALLEST_DETAIL = 1e-6  # relative to the brightness; less is rounding
N_WORDS = 1 + _DETAIL_BITS // 64
"""Words of 64 bits in a hash."""
_BLOCK_SIZE = 256  # images that are compared with as many others at once

Group = tuple[int, ...]


def perceptual_hash(image: np.ndarray) -> np.ndarray:
    """Return the hash (5,) of an image (height, width, channels): 64 bits for the coarse part, four words for details.

    The words for details are 0 if there are none, as in a constant image, or too few pixels to recognise an image by.

    Examples
    --------
    >>> image = np.random.default_rng(0).integers(0, 200, (40, 40, 1)).astype(np.uint8)
    >>> find_near(perceptual_hash(image + 20)[None], perceptual_hash(image)[None]).tolist()
    [True]
    """
    grey = image.astype(np.float32).mean(axis=2, keepdims=True)
    rows = resize_image(grey, (8, 9))[..., 0]
    small = resize_image(grey, (_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))
    coarse = resize_image(resize_image(small, (_COARSE_SIDE, _COARSE_SIDE)), (_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))
    details = (small - coarse).ravel()
    bits = details @ _projection() > 0
    is_blank = np.abs(details).max() <= _SMALLEST_DETAIL * max(1.0, float(np.abs(grey).max()))
    if is_blank or min(image.shape[:2]) < SMALLEST_SIDE:
        bits[:] = False
    packed = np.packbits(np.concatenate([(rows[:, 1:] > rows[:, :-1]).ravel(), bits]))
    return packed.view(">u8").astype(np.uint64)


def perceptual_hashes(images: Iterable[np.ndarray]) -> np.ndarray:
    """Return the hashes (n, 5) of images."""
    return np.array([perceptual_hash(image) for image in images], dtype=np.uint64).reshape(-1, N_WORDS)


@cache
def _projection() -> np.ndarray:
    """Return random signs (n_pixels, n_bits): projected on them, the signs of details agree as the details correlate.

    They come from a hash function, so that hashes in model files stay comparable whatever NumPy's generators do.
    """
    n_values = _THUMBNAIL_SIDE**2 * _DETAIL_BITS
    random = np.frombuffer(hashlib.shake_128(b"lmfcn perceptual hash").digest(n_values // 8), dtype=np.uint8)
    return (2.0 * np.unpackbits(random) - 1).astype(np.float32).reshape(-1, _DETAIL_BITS)


def _are_near(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return which pairs (n, m) of hashes (n, 5) and (m, 5) are near-identical."""
    near = np.bitwise_count(first[:, None, 0] ^ second[:, 0]) <= _MAX_COARSE_BITS
    rows, columns = np.nonzero(near)
    different = np.bitwise_count(first[rows, 1:] ^ second[columns, 1:]).sum(axis=1)
    near[rows, columns] = (different <= _MAX_DETAIL_BITS) & first[rows, 1:].any(axis=1)
    return near


def find_near(hashes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return which images (n,) have a near-identical one among known images, by their hashes (n, 5) and (m, 5)."""
    found = np.zeros(len(hashes), dtype=bool)
    for start in range(0, len(hashes), _BLOCK_SIZE):
        rows = slice(start, start + _BLOCK_SIZE)
        for first in range(0, len(known), _BLOCK_SIZE):
            found[rows] |= _are_near(hashes[rows], known[first : first + _BLOCK_SIZE]).any(axis=1)
    return found


def group_near(hashes: np.ndarray) -> list[Group]:
    """Return groups of images that are linked by near-identical hashes (n, 5), ordered by their first member."""
    labels = np.arange(len(hashes))
    for first, second in _candidates(hashes[:, 0]):
        near = _are_near(hashes[first], hashes[second]) & (labels[first, None] != labels[second])
        for one, other in zip(*(part.tolist() for part in np.nonzero(near)), strict=True):
            labels[labels == labels[second[other]]] = labels[first[one]]
    members = defaultdict(list)
    for position, label in enumerate(labels.tolist()):
        members[label].append(position)
    return [tuple(positions) for positions in members.values() if len(positions) > 1]


def _candidates(coarse: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs of blocks of indices whose coarse words (n,) share a band of bits."""
    for band in range(_N_BANDS):
        part = (coarse >> np.uint64(band * _BAND_BITS)) & np.uint64(2**_BAND_BITS - 1)
        order = np.argsort(part, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
            blocks = [members[start : start + _BLOCK_SIZE] for start in range(0, len(members), _BLOCK_SIZE)]
            if len(members) > 1:
                yield from ((first, second) for i, first in enumerate(blocks) for second in blocks[i:])


def join_groups(groups: np.ndarray | None, together: Sequence[Group], n_images: int) -> np.ndarray | None:
    """Return groups (n,) that also keep other images together: the union of both relations.

    Parameters
    ----------
    groups : array (n,) or None
        Given groups.
    together : sequence of tuple of int
        Positions of images that belong together, such as near-identical ones.
    n_images : int

    Returns
    -------
    array of int (n,), or `groups` if they keep all of these images together already

    Examples
    --------
    >>> join_groups(np.array(["a", "a", "b", "c"]), [(1, 2)], 4).tolist()
    [0, 0, 0, 1]
    """
    numbers = np.arange(n_images) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    pairs = [(numbers[group[0]], numbers[other]) for group in together for other in group[1:]]
    links = np.array([pair for pair in pairs if pair[0] != pair[1]], dtype=int).reshape(-1, 2)
    if len(links) == 0:
        return groups
    # Imported only where there is something to join: it takes a while.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_groups = int(numbers.max()) + 1
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(n_groups, n_groups))
    return connected_components(graph, directed=False)[1][numbers].astype(int)


def pack_hashes(hashes: np.ndarray) -> str:
    """Return distinct hashes (n, 5) as one text, sorted so that the order of the images is not stored.

    Examples
    --------
    >>> hashes = np.array([[7, 1, 2, 3, 4], [5, 1, 2, 3, 4], [7, 1, 2, 3, 4]], dtype=np.uint64)
    >>> unpack_hashes(pack_hashes(hashes)).tolist()
    [[5, 1, 2, 3, 4], [7, 1, 2, 3, 4]]
    """
    return base64.b64encode(np.unique(hashes, axis=0).astype(">u8").tobytes()).decode()


def unpack_hashes(text: Any) -> np.ndarray | None:
    """Return the hashes (n, 5) in a text from `pack_hashes`, or None for any other value."""
    try:
        packed = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return None
    if len(packed) % (8 * N_WORDS):
        return None
    return np.frombuffer(packed, dtype=">u8").astype(np.uint64).reshape(-1, N_WORDS)
