"""From what a user hands to `fit` to checked images for training and for validation."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lmfcn.data.arrays import check_class_sizes, check_images, check_labels, check_like_training, pixel_kind
from lmfcn.data.splits import hold_out


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
    """

    classes: np.ndarray
    images: np.ndarray
    numbers: np.ndarray
    chosen: np.ndarray
    validation_images: np.ndarray | None
    validation_numbers: np.ndarray | None

    @property
    def channels(self) -> int:
        """Channels of every image."""
        return self.images.shape[3]

    @property
    def pixels(self) -> str:
        """Kind of every pixel: uint8, uint16 or float."""
        return pixel_kind(self.images)


def check_training_data(
    X: Any,
    y: Any,
    groups: Any,
    validation: tuple[Any, Any] | None,
    fraction: float,
    random: np.random.Generator,
) -> TrainingData:
    """Check images and labels, and hold out `fraction` of them unless a validation set is given."""
    images = check_images(X)
    classes, numbers = check_labels(y, len(images))
    groups = _check_groups(groups, len(images))
    if validation is not None:
        check_class_sizes(classes, numbers, smallest=2)
        aside = _check_validation(validation, images, classes)
        return TrainingData(classes, images, numbers, np.arange(len(images)), *aside)
    if fraction == 0:
        check_class_sizes(classes, numbers, smallest=2)
        return TrainingData(classes, images, numbers, np.arange(len(images)), None, None)
    check_class_sizes(classes, numbers, smallest=3, reason=" (one of them for validation, or validation_fraction=0)")
    chosen, held_out = hold_out(numbers, fraction, random, groups)
    check_class_sizes(classes, numbers[chosen], smallest=2, reason=" after the validation images are held out")
    return TrainingData(classes, images[chosen], numbers[chosen], chosen, images[held_out], numbers[held_out])


def _check_groups(groups: Any, n_images: int) -> np.ndarray | None:
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.shape != (n_images,):
        raise ValueError(f"groups must hold one entry per image, shape ({n_images},), got shape {groups.shape}.")
    return groups


def _check_validation(
    validation: tuple[Any, Any], images: np.ndarray, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise ValueError(f"validation must be a tuple (X, y), got {type(validation).__name__}.")
    validation_images = check_images(validation[0])
    check_like_training(validation_images, images.shape[3], pixel_kind(images))
    validation_classes, found = check_labels(validation[1], len(validation_images))
    unlike = sorted(set(validation_classes.tolist()) ^ set(classes.tolist()), key=str)
    if unlike:
        raise ValueError(
            f"The validation labels must be those of the training images, {classes.tolist()};"
            f" on one side only: {unlike}."
        )
    return validation_images, found
