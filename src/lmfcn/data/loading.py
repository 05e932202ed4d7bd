"""What `fit` and `predict` make of X: an array in memory, or a collection that is read bit by bit."""

from typing import Any

import numpy as np

from lmfcn.data.arrays import check_images, check_smallest_side, pixel_kind
from lmfcn.data.collections import ImageCollection

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
