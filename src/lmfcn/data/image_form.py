"""The form of the images that a model takes, and loading images in that form."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.data.arrays import (
    SMALLEST_SIDE,
    RowShape,
    channels_hint,
    check_images,
    check_pixel_format,
    check_smallest_side,
    differ_in_size,
    pixel_kind,
    rows_to_images,
)
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import NO_PREPROCESSING, Preprocessing
from lmfcn.data.sources import TABLE_SUFFIXES, open_collection, open_images

LoadedImages = np.ndarray | ImageCollection


@dataclass(frozen=True)
class ImageForm:
    """The form that every image of a model has when it reaches the network.

    Attributes
    ----------
    channels : int
    pixels : "uint8", "uint16" or "float"
    preprocessing : Preprocessing
        Colour and size that files are converted to.
    row_shape : tuple of int, optional
        Height, width and optionally channels of images that are given as rows of a table.
    smallest_side : int
        Height and width must be at least this.
    """

    channels: int
    pixels: str
    preprocessing: Preprocessing = NO_PREPROCESSING
    row_shape: RowShape | None = None
    smallest_side: int = SMALLEST_SIDE

    def load(self, X: Any, *, verbose: bool = False) -> LoadedImages:
        """Return checked images from an array, a collection, or paths.

        Files and collections are preprocessed as this form says. A collection with a contradicting preprocessing is
        refused. Arrays are not preprocessed: they may hold tiles or windows of any size. A folder needs no class
        folders.
        """
        X = as_collection(X, labelled=False)
        images = load_any(X, self.preprocessing, self.row_shape, verbose=verbose)
        check_pixel_format(pixel_format_of(images), self.channels, self.pixels, channels_hint(X, self.channels))
        if self.smallest_side > SMALLEST_SIDE:
            sizes = np.array([images.shape[1:3]]) if isinstance(images, np.ndarray) else images.sizes()
            height, width = sizes.min(axis=0).tolist()
            check_smallest_side(height, width, " for this model", self.smallest_side)
        return images

    def as_dict(self) -> dict[str, Any]:
        """Return the values for a model file, where the preprocessing has the key "frame"."""
        return {"frame" if name == "preprocessing" else name: value for name, value in asdict(self).items()}


def load_any(
    X: Any, preprocessing: Preprocessing = NO_PREPROCESSING, row_shape: RowShape | None = None, *, verbose: bool = False
) -> LoadedImages:
    """Return checked images from rows, an array, a collection, or anything that `as_collection` converts.

    A collection takes the color and size that it does not set itself from `preprocessing`. Contradictions are refused.
    """
    X = as_collection(X)
    if row_shape is not None and not isinstance(X, ImageCollection):
        return rows_to_images(np.asarray(X), row_shape)
    if isinstance(X, ImageCollection):
        X = X.preprocessed_for_model(preprocessing)
    return load_images(X, verbose=verbose)


def load_images(X: Any, *, verbose: bool = False) -> LoadedImages:
    """Return checked images: an array if they have one size and fit into memory, else a checked collection.

    All files that cannot be used are reported in one error.
    """
    if not isinstance(X, ImageCollection):
        X = X.tolist() if _is_array_of_arrays(X) else X
        if not differ_in_size(X):
            return check_images(X)
        X = ImageCollection(X)
    pixel_format_of(X)
    for height, width in np.unique(X.sizes(), axis=0):
        check_smallest_side(int(height), int(width))
    if X.fits_in_memory():
        return check_images(X.to_array(verbose=verbose))
    return X.checked(verbose=verbose)


def _is_array_of_arrays(X: Any) -> bool:
    """Return whether X is an array of objects, the form that NumPy gives to images of different sizes."""
    return isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1


def as_collection(X: Any, *, labelled: bool = True) -> Any:
    """Convert a path or a list of paths to a collection; return anything else unchanged.

    Unless images must be `labelled`, a folder needs no class folders.
    """
    if isinstance(X, str | Path):
        is_image = Path(X).is_file() and Path(X).suffix.lower() not in TABLE_SUFFIXES
        return ImageCollection([X]) if is_image else open_collection(X) if labelled else open_images(X)
    if isinstance(X, list | tuple) and X and all(isinstance(path, str | Path) for path in X):
        return ImageCollection(X)
    return X


def paths_of(X: Any) -> np.ndarray:
    """Return the path (n,) of every image; of an array "image 0", "image 1" and so on."""
    return np.array(X.paths if isinstance(X, ImageCollection) else [f"image {number}" for number in range(len(X))])


def pixel_format_of(images: LoadedImages) -> tuple[int, str]:
    """Return the number of channels and the kind of pixels, such as (3, "uint8")."""
    return (images.shape[3], pixel_kind(images)) if isinstance(images, np.ndarray) else images.pixel_format()
