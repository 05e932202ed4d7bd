"""A short text that changes when the data change."""

import hashlib
from typing import Any

import numpy as np

from lmfcn.data.loading import LoadedImages

_AT_ONCE = 64


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
