"""From what a user hands to `fit` to checked images for training and for validation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lmfcn.data.arrays import check_class_sizes, check_labels, check_like_training
from lmfcn.data.collections import ImageCollection
from lmfcn.data.images import CollectionError
from lmfcn.data.loading import LoadedImages, form_of, load_images
from lmfcn.data.splits import check_groups, hold_out


@dataclass(frozen=True)
class TrainingData:
    """Checked images with class numbers, and what a model must remember of them.

    Attributes
    ----------
    classes : array (n_classes,)
        The labels in sorted order; class numbers are positions in it.
    images, numbers : arrays (n, h, w, c) and (n,)
        What to train on.
    chosen : array of int (n,)
        Positions of `images` in the X that was handed over.
    validation_images, validation_numbers : arrays or None
        What to choose the epoch by.
    channels, pixels : int and str
        The form of every image.
    """

    classes: np.ndarray
    images: LoadedImages
    numbers: np.ndarray
    chosen: np.ndarray
    validation_images: LoadedImages | None
    validation_numbers: np.ndarray | None
    channels: int
    pixels: str


def check_training_data(
    X: Any,
    y: Any,
    groups: Any,
    validation: Any,
    fraction: float,
    random: np.random.Generator,
    *,
    verbose: bool = False,
) -> TrainingData:
    """Check images and labels, and hold out `fraction` of them unless a validation set is given."""
    images = load_images(X, verbose=verbose)
    if isinstance(X, ImageCollection):
        y, groups = X.labels if y is None else y, X.groups if groups is None else groups
    if y is None:
        raise ValueError("y is missing: fit needs a label for every image, as y or in the collection.")
    classes, numbers = check_labels(y, len(images))
    groups = None if groups is None else check_groups(groups, len(images))
    form = form_of(images)
    everyone = np.arange(len(images))
    if validation is not None:
        check_class_sizes(classes, numbers, smallest=2)
        return TrainingData(classes, images, numbers, everyone, *_check_validation(validation, form, classes), *form)
    if fraction == 0:
        check_class_sizes(classes, numbers, smallest=2)
        return TrainingData(classes, images, numbers, everyone, None, None, *form)
    check_class_sizes(classes, numbers, smallest=3, reason=" (one of them for validation, or validation_fraction=0)")
    chosen, held_out = hold_out(numbers, fraction, random, groups)
    check_class_sizes(classes, numbers[chosen], smallest=2, reason=" after the validation images are held out")
    return TrainingData(classes, images[chosen], numbers[chosen], chosen, images[held_out], numbers[held_out], *form)


def _check_validation(validation: Any, form: tuple[int, str], classes: np.ndarray) -> tuple[LoadedImages, np.ndarray]:
    if isinstance(validation, ImageCollection):
        validation = (validation, validation.labels)
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise ValueError(f"validation must be a tuple (X, y) or a collection, got {type(validation).__name__}.")
    try:
        images = load_images(validation[0])
        check_like_training(form_of(images), *form)
        found, numbers = check_labels(validation[1], len(images))
    except CollectionError:
        raise  # names its files
    except ValueError as error:
        raise ValueError(f"In the validation images: {error}") from error
    unlike = sorted(set(found.tolist()) ^ set(classes.tolist()), key=str)
    if unlike:
        raise ValueError(
            f"The validation labels must be those of the training images, {classes.tolist()};"
            f" on one side only: {unlike}."
        )
    return images, numbers
