"""Images of any depth and number of channels as pictures that people can look at."""

import io

import numpy as np
from PIL import Image

THUMBNAIL = 96
"""Pixels of the longer side of a thumbnail, at most."""

_QUALITY = 90


def picture_of(image: np.ndarray) -> np.ndarray:
    """Return an image (height, width, channels) as uint8 pixels (height, width, 1 or 3).

    Floating point pixels count from 0 to 1, or from the smallest to the largest if they go beyond; of other numbers of
    channels than 1 and 3, the mean is shown.

    Examples
    --------
    >>> picture_of(np.full((1, 1, 5), 65535, dtype=np.uint16)).tolist()
    [[[255]]]
    """
    shown = image if image.shape[2] in (1, 3) else image.mean(axis=2, keepdims=True)
    if image.dtype == np.uint8:
        return np.rint(shown).astype(np.uint8)
    if image.dtype == np.uint16:
        return np.rint(shown / 257).astype(np.uint8)
    low, high = min(0.0, float(shown.min())), max(1.0, float(shown.max()))
    return np.rint((shown.astype(np.float64) - low) * (255 / (high - low))).astype(np.uint8)


def as_pillow(picture: np.ndarray) -> Image.Image:
    """Return uint8 pixels (height, width, 1 or 3) as a picture of Pillow."""
    return Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)


def thumbnail(image: np.ndarray, side: int = THUMBNAIL) -> bytes:
    """Return a small JPEG file of an image (height, width, channels), its longer side at most `side` pixels."""
    small = as_pillow(picture_of(image))
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=_QUALITY)
    return buffer.getvalue()
