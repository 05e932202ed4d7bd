"""What the page shows of an image: the image as the model takes it, and the same with the map over it."""

import io

import numpy as np

from lmfcn.data.framing import resize_image
from lmfcn.data.pictures import as_address, as_pillow, picture_of
from lmfcn.report.overlay import overlay

LARGEST_SIDE = 512
"""Pixels of the longer side of a picture, at most."""


def pictures_of(image: np.ndarray, values: np.ndarray) -> tuple[str, str]:
    """Return the addresses of two PNG files: an image, and the same with a map over it.

    Parameters
    ----------
    image : array (height, width, channels)
    values : array (height, width)

    Examples
    --------
    >>> picture, with_map = pictures_of(np.zeros((16, 16, 1), dtype=np.uint8), np.ones((16, 16)))
    >>> picture[:30]
    'data:image/png;base64,iVBORw0K'
    """
    scale = LARGEST_SIDE / max(values.shape)
    if scale < 1:
        size = (max(1, round(scale * values.shape[0])), max(1, round(scale * values.shape[1])))
        values = resize_image(values.astype(np.float32)[..., None], size)[..., 0]
        image = resize_image(picture_of(image), size)
    buffer = io.BytesIO()
    as_pillow(picture_of(image)).save(buffer, format="PNG")
    return as_address(buffer.getvalue(), "png"), as_address(overlay(image, values), "png")
