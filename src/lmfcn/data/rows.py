"""Images that come as the rows of a table, the only form that some tools for tables can hand on."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from lmfcn.data.arrays import check_images

RowShape = tuple[int, ...]


def check_row_shape(image_shape: Any) -> RowShape:
    """Return height, width and perhaps channels; one of them may be -1, for what is left.

    Examples
    --------
    >>> check_row_shape([8, -1])
    (8, -1)
    """
    sides = tuple(image_shape) if isinstance(image_shape, Sequence) else ()
    sound = len(sides) in (2, 3) and all(isinstance(side, Integral) and (side == -1 or int(side) > 0) for side in sides)
    if not sound or sides.count(-1) > 1:
        raise ValueError(
            "image_shape must be (height, width) or (height, width, channels), one of them -1 for what is left,"
            f" got {image_shape!r}."
        )
    return tuple(int(side) for side in sides)


def images_of_rows(rows: np.ndarray, row_shape: RowShape) -> np.ndarray:
    """Return images (n, height, width, channels) from rows (n, height * width * channels).

    The smallest side of ordinary images is not asked for here: a shape that was spelled out is meant, such as
    (1, -1) for spectra and other signals.

    Examples
    --------
    >>> images_of_rows(np.zeros((5, 24)), (4, 2, 3)).shape
    (5, 4, 2, 3)
    """
    if rows.ndim != 2:
        raise ValueError(f"X must hold one row of pixels per image, shape (n_images, n_pixels), got {rows.shape}.")
    try:
        images = rows.reshape(len(rows), *row_shape)
    except ValueError as error:
        raise ValueError(
            f"image_shape {row_shape} does not fit X with {rows.shape[1]} columns; it must multiply to their number."
        ) from error
    return check_images(images, smallest_side=1)
