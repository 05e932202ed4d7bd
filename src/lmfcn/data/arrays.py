"""Check the arrays, labels, table rows and seeds that users pass in."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

RandomState = None | int | np.random.Generator | np.random.RandomState
RowShape = tuple[int, ...]

SMALLEST_SIDE = 8
"""Smallest height and width in pixels: two pooling layers leave too little of a smaller image to average over."""

_CHECK_BATCH = 64
_MAX_PIXEL = 1e6  # squares of larger values soon leave single precision
_PIXEL_DTYPES = [np.dtype(name) for name in ("uint8", "uint16", "float16", "float32", "float64")]


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a generator from a seed, another generator, or fresh entropy for None.

    Examples
    --------
    >>> int(as_generator(0).integers(100)) == int(as_generator(0).integers(100))
    True
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state must be None, a non-negative int or a NumPy generator, got {random_state!r}."
        ) from error


def check_images(X: Any, *, smallest_side: int = SMALLEST_SIDE) -> np.ndarray:
    """Return X as images (n, height, width, channels), or raise an error that says what is wrong.

    Parameters
    ----------
    X : array-like (n, height, width) or (n, height, width, channels)
        uint8, uint16 or finite floating point values.
    smallest_side : int
        Height and width must be at least this.

    Examples
    --------
    >>> check_images(np.zeros((5, 16, 24), dtype=np.uint8)).shape
    (5, 16, 24, 1)
    """
    try:
        images = np.asarray(X)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            "X must be an array of images of equal size, got a sequence that NumPy cannot convert to one array;"
            " resize or crop the images, or use an ImageCollection."
        ) from error
    if images.ndim not in (3, 4):
        raise ValueError(
            "X must have the shape (n_images, height, width) or (n_images, height, width, channels),"
            f" got {images.shape}; a single image goes in as X[None], rows of pixels need image_shape."
        )
    images = images.astype(images.dtype.newbyteorder("="), copy=False)
    if images.dtype not in _PIXEL_DTYPES:
        raise ValueError(
            f"X must hold uint8, uint16 or floating point pixels, got {images.dtype}; convert it with X.astype."
        )
    images = images[..., None] if images.ndim == 3 else images
    _check_shape(images.shape, smallest_side)
    _check_finite(images)
    return images


def _check_shape(shape: tuple[int, ...], smallest_side: int) -> None:
    n_images, height, width, channels = shape
    if n_images == 0:
        raise ValueError("X must hold at least one image, got none.")
    if channels == 0:
        raise ValueError("X must have at least one channel, got none.")
    channels_first = height <= 4 and channels >= SMALLEST_SIDE
    hint = "; put the channels last: X.transpose(0, 2, 3, 1)" if channels_first else ""
    check_smallest_side(height, width, hint, smallest_side)


def check_smallest_side(height: int, width: int, hint: str = "", smallest: int = SMALLEST_SIDE) -> None:
    """Refuse images that are too small for the network; `hint` ends the sentence."""
    if min(height, width) < smallest:
        raise ValueError(f"Images must have at least {smallest}x{smallest} pixels, got {height}x{width}{hint}.")


def _check_finite(images: np.ndarray) -> None:
    if not np.issubdtype(images.dtype, np.floating):
        return
    for start in range(0, len(images), _CHECK_BATCH):
        part = images[start : start + _CHECK_BATCH]
        finite = np.isfinite(part).all(axis=(1, 2, 3))
        if not finite.all():
            raise ValueError(
                f"X must be finite, but image {start + int((~finite).argmax())} has NaN or infinite pixels;"
                " remove it or repair it with numpy.nan_to_num."
            )
        largest = np.abs(part).max(axis=(1, 2, 3)).astype(np.float64)
        if largest.max() > _MAX_PIXEL:
            raise ValueError(
                f"X must hold pixels of moderate size, best within 0 to 1, but image {start + int(largest.argmax())}"
                f" has one of {largest.max():.3g}; rescale the images."
            )


def pixel_kind(images: np.ndarray) -> str:
    """Return the kind of pixels, which must be the same at fit and predict: "uint8", "uint16" or "float"."""
    return "float" if np.issubdtype(images.dtype, np.floating) else str(images.dtype)


def check_pixel_format(pixel_format: tuple[int, str], channels: int, kind: str) -> None:
    """Refuse images whose pixel format (channels, kind of pixels) differs from that of the training images."""
    n_found, kind_found = pixel_format
    if n_found != channels:
        raise ValueError(
            f"X has {_count(n_found, 'channel')}, but the classifier was fitted on images with {channels};"
            " convert the images to the same channels."
        )
    if kind_found != kind:
        raise ValueError(
            f"X has {kind_found} pixels, but the classifier was fitted on {kind} ones;"
            " give images of the same depth and scale."
        )


def check_row_shape(image_shape: Any) -> RowShape:
    """Return height, width and optionally channels; one of them may be -1 and is then inferred.

    Examples
    --------
    >>> check_row_shape([8, -1])
    (8, -1)
    """
    sides = tuple(image_shape) if isinstance(image_shape, Sequence) else ()
    valid = len(sides) in (2, 3) and all(isinstance(side, Integral) and (side == -1 or int(side) > 0) for side in sides)
    if not valid or sides.count(-1) > 1:
        raise ValueError(
            "image_shape must be (height, width) or (height, width, channels), one of them may be -1 to be inferred,"
            f" got {image_shape!r}."
        )
    return tuple(int(side) for side in sides)


def rows_to_images(rows: np.ndarray, row_shape: RowShape) -> np.ndarray:
    """Return images (n, height, width, channels) from rows (n, height * width * channels).

    Images of rows may be smaller than `SMALLEST_SIDE`: the user chose the shape, such as (1, -1) for spectra.

    Examples
    --------
    >>> rows_to_images(np.zeros((5, 24)), (4, 2, 3)).shape
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


def check_labels(y: Any, n_images: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes in sorted order and the class number (n,) of every image.

    Examples
    --------
    >>> classes, numbers = check_labels(["wood", "steel", "wood"], 3)
    >>> classes.tolist(), numbers.tolist()
    (['steel', 'wood'], [1, 0, 1])
    """
    labels = as_entries("y", y)
    if labels.ndim != 1:
        raise ValueError(f"y must hold one label per image, shape (n_images,), got shape {labels.shape}.")
    if len(labels) != n_images:
        raise ValueError(f"X and y must have the same length, got {n_images} images and {len(labels)} labels.")
    labels = _plain_labels(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least two classes, got {_count(len(classes), 'class', 'classes')}: {classes.tolist()}."
        )
    return classes, numbers


def _plain_labels(labels: np.ndarray) -> np.ndarray:
    """Convert labels to text or numbers, the types that a model file can hold."""
    if labels.dtype == object:
        kinds = {type(label) for label in labels.tolist()}
        if kinds <= {int, bool}:
            labels = labels.astype(bool if kinds == {bool} else np.int64)
        elif not all(issubclass(kind, str) for kind in kinds):
            raise ValueError(f"y must hold text or numbers, got {kinds.pop().__name__}; convert the labels.")
    elif labels.dtype.kind == "T":
        labels = labels.astype(str)
    elif labels.dtype.kind not in "iufbU":
        raise ValueError(f"y must hold text or numbers, got {labels.dtype}; convert the labels.")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise ValueError("y must not hold NaN or infinite labels; remove those images or label them.")
        fractions = labels[labels != np.rint(labels)]
        if len(fractions):
            raise ValueError(
                f"Unknown label type: y must hold names or whole numbers, got fractions such as {fractions[0]};"
                " group a quantity into classes first."
            )
        labels = labels.astype(np.float64)
    return labels


def as_entries(name: str, values: Any) -> np.ndarray:
    """Return labels or groups as an array whose entries can be compared and sorted."""
    try:
        entries = np.asarray(values)
        if entries.dtype == object:
            np.unique(entries)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must hold entries of one type, got a mixture or missing ones; complete and convert them."
        ) from error
    return entries


def check_class_sizes(classes: np.ndarray, numbers: np.ndarray, smallest: int, reason: str = "") -> None:
    """Refuse classes with fewer than `smallest` images; `reason` ends the sentence."""
    counts = np.bincount(numbers, minlength=len(classes))
    if counts.min() < smallest:
        small = int(counts.argmin())
        raise ValueError(
            f"Class {classes[small].item()!r} has {_count(counts[small], 'image')};"
            f" at least {smallest} are needed{reason}."
        )


def vote_by_source(sources: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Combine the values of tiles (n, ...) into one value per source image (n,).

    Numbers are averaged. Of labels the most frequent wins; ties go to the first in sorted order.

    Examples
    --------
    >>> sources, winners = vote_by_source(np.array([0, 0, 0, 7]), np.array(["a", "b", "b", "a"]))
    >>> sources.tolist(), winners.tolist()
    ([0, 7], ['b', 'a'])
    """
    distinct, source_indices = np.unique(sources, return_inverse=True)
    if np.issubdtype(values.dtype, np.floating):
        totals = np.zeros((len(distinct), *values.shape[1:]))
        np.add.at(totals, source_indices, values)
        return distinct, totals / np.bincount(source_indices).reshape(-1, *[1] * (values.ndim - 1))
    classes, numbers = np.unique(values, return_inverse=True)
    votes = np.zeros((len(distinct), len(classes)), dtype=int)
    np.add.at(votes, (source_indices, numbers), 1)
    return distinct, classes[votes.argmax(axis=1)]


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
