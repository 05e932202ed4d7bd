"""Short texts by which data, and single images, are known again."""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from lmfcn.data.loading import LoadedImages

_AT_ONCE = 64
_DIGEST_BYTES = 6  # ten thousand images against ten thousand others: one false alarm in a million comparisons


def fingerprint(images: LoadedImages | None, labels: Any) -> str:
    """Return 32 hexadecimal digits that depend on every pixel, on the labels and on the order.

    Examples
    --------
    >>> images = np.zeros((2, 8, 8, 1), dtype=np.uint8)
    >>> fingerprint(images, ["a", "b"]) == fingerprint(images, ["b", "a"])
    False
    """
    digest = hashlib.blake2b(repr(np.asarray(labels).tolist()).encode(), digest_size=16)
    if isinstance(images, np.ndarray):
        digest.update(repr((images.shape, images.dtype.str)).encode())
        for start in range(0, len(images), _AT_ONCE):
            digest.update(np.ascontiguousarray(images[start : start + _AT_ONCE]).data)
    elif images is not None:
        for image in images:
            digest.update(repr((image.shape, image.dtype.str)).encode())
            digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


def image_digests(images: Iterable[np.ndarray]) -> list[bytes]:
    """Return six bytes for every image (height, width, channels) that depend on each of its pixels."""
    return [
        hashlib.blake2b(
            repr((image.shape, image.dtype.str)).encode() + image.tobytes(), digest_size=_DIGEST_BYTES
        ).digest()
        for image in images
    ]


def pack_digests(digests: Iterable[bytes]) -> str:
    """Return digests as one text, in an order that tells nothing.

    Examples
    --------
    >>> digests = image_digests(np.zeros((2, 8, 8, 1), dtype=np.uint8))
    >>> unpack_digests(pack_digests(digests)) == set(digests)
    True
    """
    return base64.b64encode(b"".join(sorted(set(digests)))).decode()


def unpack_digests(text: Any) -> set[bytes]:
    """Return the digests in a text; none if it is not one of `pack_digests`."""
    try:
        packed = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return set()
    return {packed[start : start + _DIGEST_BYTES] for start in range(0, len(packed), _DIGEST_BYTES)}
