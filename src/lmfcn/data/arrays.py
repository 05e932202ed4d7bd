"""Check the arrays, tensors, labels, table rows and seeds that users pass in."""

import sys
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

RandomState = None | int | np.random.Generator | np.random.RandomState
RowShape = tuple[int, ...]

SMALLEST_SIDE = 8
"""Smallest height and width in pixels: two pooling layers leave too little of a smaller image to average over."""

_CHECK_BATCH = 64
_MOST_COLORS = 4  # a side of at most so many pixels is rather the channels of grey, RGB or RGBA images
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
    X : array-like or torch tensor (n, height, width) or (n, height, width, channels)
        uint8, uint16 or finite floating point values.
    smallest_side : int
        Height and width must be at least this.

    Examples
    --------
    >>> check_images(np.zeros((5, 16, 24), dtype=np.uint8)).shape
    (5, 16, 24, 1)
    """
    images = _to_array(X)
    if images.ndim not in (3, 4):
        raise ValueError(
            "X must have the shape (n_images, height, width) or (n_images, height, width, channels),"
            f" got {_describe_shape(X, images)}."
        )
    images = _check_dtype(images, "X.to" if _is_tensor(X) else "X.astype")
    if images.ndim == 4:
        hint = _channels_last_hint("X", images.shape[1:], (0, 2, 3, 1), is_tensor=_is_tensor(X))
    else:
        one_image = images.shape[2] <= _MOST_COLORS and min(images.shape[:2]) >= SMALLEST_SIDE
        hint = f"; X of the shape {images.shape} looks like one image, which goes in as X[None]" if one_image else ""
        images = images[..., None]
    _check_shape(images.shape, smallest_side, hint)
    _check_finite(images)
    return images


def check_image_list(images: Sequence[Any]) -> list[np.ndarray]:
    """Return a list of images (height, width, channels) that may differ in size, or raise an error.

    Parameters
    ----------
    images : sequence of arrays or torch tensors (height, width) or (height, width, channels)

    Examples
    --------
    >>> [image.shape for image in check_image_list([np.zeros((16, 24)), np.zeros((20, 12, 1))])]
    [(16, 24, 1), (20, 12, 1)]
    """
    checked = [_check_image(image, number) for number, image in enumerate(images)]
    if not all(np.issubdtype(image.dtype, np.floating) for image in checked):
        return checked
    dtype = np.result_type(*{image.dtype for image in checked})
    return [image.astype(dtype, copy=False) for image in checked]


def _check_image(image: Any, number: int) -> np.ndarray:
    pixels = np.asarray(to_numpy(image))
    if pixels.ndim not in (2, 3):
        raise ValueError(
            "A list must hold images of the shape (height, width) or (height, width, channels),"
            f" but image {number} has the shape {pixels.shape}."
        )
    pixels = _check_dtype(pixels, "to" if _is_tensor(image) else "astype")
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    hint = _channels_last_hint("image", pixels.shape, (1, 2, 0), is_tensor=_is_tensor(image))
    _check_shape((1, *pixels.shape), SMALLEST_SIDE, f" in image {number}{hint}")
    _check_finite(pixels[None], first=number)
    return pixels


def differ_in_size(X: Any) -> bool:
    """Return whether X is a list of arrays or tensors whose shapes differ, which no single array can hold."""
    if not isinstance(X, list | tuple) or not all(isinstance(image, np.ndarray) or _is_tensor(image) for image in X):
        return False
    return len({tuple(image.shape) for image in X}) > 1


def to_numpy(values: Any) -> Any:
    """Return a torch tensor as an array; anything else unchanged.

    Examples
    --------
    >>> import torch
    >>> to_numpy(torch.ones(2, requires_grad=True)).tolist(), to_numpy([1, 2])
    ([1.0, 1.0], [1, 2])
    """
    if not _is_tensor(values):
        return values
    tensor = values.detach().cpu()
    has_numpy_type = str(tensor.dtype) != "torch.bfloat16"
    return (tensor if has_numpy_type else tensor.float()).numpy()


def _is_tensor(values: Any) -> bool:
    # Images can be checked without torch, which takes seconds to import. Who has a tensor has imported it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def _to_array(X: Any) -> np.ndarray:
    X = [to_numpy(image) for image in X] if isinstance(X, list | tuple) else to_numpy(X)
    try:
        return np.asarray(X)
    except (ValueError, RuntimeError, TypeError) as error:
        raise ValueError(
            "X must be an array of images of equal size, or a list of arrays, got"
            f" {_describe_other(X) or 'a sequence that NumPy cannot convert'}."
        ) from error


def _describe_shape(X: Any, images: np.ndarray) -> str:
    """Say what came instead of an array of images, and what to do."""
    if other := _describe_other(X):
        return other
    if images.ndim == 0:
        return f"{X!r:.60}" if isinstance(X, str | int | float) or X is None else type(X).__name__
    hint = "; a single image goes in as X[None], rows of pixels need image_shape" if images.ndim == 2 else ""
    return f"{images.shape}{hint}"


def _describe_other(X: Any) -> str | None:
    """Name what torch calls a Dataset or DataLoader, and what to give instead."""
    if not any(kind.__module__.startswith("torch.utils.data") for kind in type(X).__mro__):
        return None
    return f"a torch {type(X).__name__}; give its images as one tensor (b, h, w, c), or as a list of tensors (h, w, c)"


def _check_dtype(images: np.ndarray, convert: str) -> np.ndarray:
    """Return images in the byte order of this machine; refuse pixels of other types."""
    images = images.astype(images.dtype.newbyteorder("="), copy=False)
    if images.dtype not in _PIXEL_DTYPES:
        raise ValueError(
            f"X must hold uint8, uint16 or floating point pixels, got {images.dtype}; convert it with {convert}."
        )
    return images


def _channels_last_hint(name: str, shape: tuple[int, ...], order: tuple[int, ...], *, is_tensor: bool) -> str:
    """Return how to bring an image (height, width, channels) into this order if its channels seem to come first."""
    if not (shape[0] <= _MOST_COLORS and shape[2] >= SMALLEST_SIDE):
        return ""
    return f"; put the channels last: {name}.{'permute' if is_tensor else 'transpose'}({', '.join(map(str, order))})"


def channels_hint(X: Any, channels: int) -> str:
    """Return how to give X, if it seems to be one image with so many channels instead of several grey images."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 3 or channels == 1 or channels not in (shape[0], shape[2]):
        return ""
    if shape[2] == channels:
        return "; a single image goes in as X[None]"
    return f"; a single image goes in as X.{'permute' if _is_tensor(X) else 'transpose'}(1, 2, 0)[None]"


def _check_shape(shape: tuple[int, ...], smallest_side: int, hint: str) -> None:
    n_images, height, width, channels = shape
    if n_images == 0:
        raise ValueError("X must hold at least one image, got none.")
    if channels == 0:
        raise ValueError("X must have at least one channel, got none.")
    check_smallest_side(height, width, hint, smallest_side)


def check_smallest_side(height: int, width: int, hint: str = "", smallest: int = SMALLEST_SIDE) -> None:
    """Refuse images that are too small for the network; `hint` ends the sentence."""
    if min(height, width) < smallest:
        raise ValueError(f"Images must have at least {smallest}x{smallest} pixels, got {height}x{width}{hint}.")


def _check_finite(images: np.ndarray, first: int = 0) -> None:
    """Refuse NaN, infinite and very large pixels; messages count images from `first` on."""
    if not np.issubdtype(images.dtype, np.floating):
        return
    for start in range(0, len(images), _CHECK_BATCH):
        part = images[start : start + _CHECK_BATCH]
        finite = np.isfinite(part).all(axis=(1, 2, 3))
        if not finite.all():
            raise ValueError(
                f"X must be finite, but image {first + start + int((~finite).argmax())} has NaN or infinite pixels;"
                " remove it or repair it with numpy.nan_to_num."
            )
        largest = np.abs(part).max(axis=(1, 2, 3)).astype(np.float64)
        if largest.max() > _MAX_PIXEL:
            raise ValueError(
                "X must hold pixels of moderate size, best within 0 to 1, but image"
                f" {first + start + int(largest.argmax())} has one of {largest.max():.3g}; rescale the images."
            )


def pixel_kind(images: np.ndarray) -> str:
    """Return the kind of pixels, which must be the same at fit and predict: "uint8", "uint16" or "float"."""
    return "float" if np.issubdtype(images.dtype, np.floating) else str(images.dtype)


def check_pixel_format(pixel_format: tuple[int, str], channels: int, kind: str, hint: str = "") -> None:
    """Refuse images whose pixel format (channels, kind of pixels) differs from that of the training images.

    `hint` ends the sentence about channels.
    """
    n_found, kind_found = pixel_format
    if n_found != channels:
        raise ValueError(
            f"X has {_count(n_found, 'channel')}, but the classifier was fitted on images with {channels};"
            f" convert the images to the same channels{hint}."
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
        entries = np.asarray(to_numpy(values))
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
