"""The form of the images that a model takes: colour, size, pixel type, and how images get there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.data.arrays import (
    RowShape,
    check_images,
    check_like_training,
    check_smallest_side,
    images_of_rows,
    pixel_kind,
)
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import AS_IT_IS, Frame
from lmfcn.data.sources import TABLE_SUFFIXES, open_collection

LoadedImages = np.ndarray | ImageCollection


def load_images(X: Any, *, verbose: bool = False) -> LoadedImages:
    """Return checked images: an array if they have one size and fit into memory, else a checked collection.

    Every file that cannot be used is reported, all at once.
    """
    if not isinstance(X, ImageCollection):
        return check_images(X)
    form_of(X)
    for height, width in np.unique(X.sizes(), axis=0):
        check_smallest_side(int(height), int(width))
    if X.fits_in_memory():
        return check_images(X.to_array(verbose=verbose))
    return X.checked(verbose=verbose)


def form_of(images: LoadedImages) -> tuple[int, str]:
    """Return the number of channels and the kind of pixels."""
    return (images.shape[3], pixel_kind(images)) if isinstance(images, np.ndarray) else images.form()


@dataclass(frozen=True)
class ImageForm:
    """What every image of a model looks like when it reaches the network.

    Attributes
    ----------
    channels : int
    pixels : "uint8", "uint16" or "float"
    frame : Frame
        Colour and size that files are brought to.
    row_shape : tuple of int, optional
        Height, width and perhaps channels of images that come as rows of a table.
    """

    channels: int
    pixels: str
    frame: Frame = AS_IT_IS
    row_shape: RowShape | None = None

    def load(self, X: Any, *, verbose: bool = False) -> LoadedImages:
        """Return checked images from an array, a collection, or paths.

        Files and collections are brought to the frame of this form, or refused where they ask for another one. An
        array must hold the pixels as the network takes them: its images may be tiles or windows of any size.
        """
        images = load_any(X, self.frame, self.row_shape, verbose=verbose)
        check_like_training(form_of(images), self.channels, self.pixels)
        return images


def load_any(
    X: Any, frame: Frame = AS_IT_IS, row_shape: RowShape | None = None, *, verbose: bool = False
) -> LoadedImages:
    """Return checked images from rows, an array, a collection, or whatever `as_collection` understands.

    What the frame of a collection leaves open is taken from `frame`; one that contradicts it is refused.
    """
    X = as_collection(X)
    if row_shape is not None and not isinstance(X, ImageCollection):
        return images_of_rows(np.asarray(X), row_shape)
    if isinstance(X, ImageCollection):
        X = X.framed_for_model(frame)
    return load_images(X, verbose=verbose)


def as_collection(X: Any) -> Any:
    """Return the collection that a path or a list of paths of images stands for; anything else as it is."""
    if isinstance(X, str | Path):
        is_image = Path(X).is_file() and Path(X).suffix.lower() not in TABLE_SUFFIXES
        return ImageCollection([X]) if is_image else open_collection(X)
    if isinstance(X, list | tuple) and X and all(isinstance(path, str | Path) for path in X):
        return ImageCollection(X)
    return X
