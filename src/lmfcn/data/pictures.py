"""Images of any depth and number of channels as pictures that people can look at."""

import base64
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


def small_picture(image: np.ndarray, side: int = THUMBNAIL) -> Image.Image:
    """Return an image (height, width, channels) as a picture whose longer side is at most `side` pixels."""
    small = as_pillow(picture_of(image))
    small.thumbnail((side, side))
    return small


def thumbnail(image: np.ndarray, side: int = THUMBNAIL) -> bytes:
    """Return a small JPEG file of an image (height, width, channels), its longer side at most `side` pixels."""
    return as_jpeg(small_picture(image, side))


def as_jpeg(picture: Image.Image) -> bytes:
    """Return a picture as a JPEG file."""
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=_QUALITY)
    return buffer.getvalue()


def as_address(file: bytes, kind: str = "jpeg") -> str:
    """Return a picture file as an address that holds it: data:image/jpeg;base64,..."""
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"
