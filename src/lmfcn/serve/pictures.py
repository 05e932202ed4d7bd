"""What the page shows of an image: the image as the model takes it, and the same with the map over it."""

import base64
import io

import numpy as np
from PIL import Image

from lmfcn.explain.pictures import as_pillow, picture_of

LARGEST_SIDE = 512
"""Pixels of the longer side of a picture, at most."""

_FOR, _AGAINST = np.array([255.0, 140.0, 0.0]), np.array([30.0, 110.0, 255.0])
_DENSEST = 0.7


def small_picture(image: np.ndarray) -> Image.Image:
    """Return an image (height, width, channels) as a picture of at most 512 pixels."""
    picture = as_pillow(picture_of(image)).convert("RGB")
    picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    return picture


def with_map(picture: Image.Image, values: np.ndarray) -> Image.Image:
    """Return a grey version of a picture with a map over it: orange where it is positive, blue where it is negative.

    Parameters
    ----------
    picture : Image
    values : array (height, width)
        The stronger, the denser the colour; the largest is as dense as it gets.

    Examples
    --------
    >>> with_map(Image.new("RGB", (2, 1)), np.array([[1.0, 0.0]])).getpixel((1, 0))
    (0, 0, 0)
    """
    scaled = Image.fromarray(values.astype(np.float32)).resize(picture.size, Image.Resampling.BILINEAR)
    strength = np.asarray(scaled, dtype=np.float64)[..., None] / max(float(np.abs(values).max()), 1e-12)
    density = _DENSEST * np.abs(strength)
    colour = np.where(strength > 0, _FOR, _AGAINST)
    grey = np.asarray(picture.convert("L").convert("RGB"), dtype=np.float64)
    return Image.fromarray(np.rint((1 - density) * grey + density * colour).astype(np.uint8))


def as_address(content: bytes, kind: str) -> str:
    """Return a file as an address that holds it: data:image/png;base64,..."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def as_png(picture: Image.Image) -> str:
    """Return a picture as an address that holds it as PNG."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=1)
    return as_address(buffer.getvalue(), "png")
