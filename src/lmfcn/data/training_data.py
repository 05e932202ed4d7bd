"""Check the training and validation images of `fit`, and compute their fingerprints."""

import base64
import binascii
import hashlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lmfcn.data.arrays import RowShape, check_class_sizes, check_labels
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import NO_PREPROCESSING
from lmfcn.data.image_files import CollectionError
from lmfcn.data.image_form import ImageForm, LoadedImages, as_collection, load_any, pixel_format_of
from lmfcn.data.leaks import LeakWarning
from lmfcn.data.near_duplicates import group_near, join_groups, pack_hashes, perceptual_hashes
from lmfcn.data.splits import check_groups, hold_out

SPLIT_ANYWAY = (
    "Near-identical images count as one group; to separate them anyway, give --split-duplicates"
    " (in Python Recipe(split_duplicates=True))."
)
"""What to do if near-identical images leave too few groups."""

_HASH_BATCH = 64
_DIGEST_BYTES = 6  # comparing ten thousand images with ten thousand others gives one false match in a million cases


def fingerprint(images: LoadedImages | None, labels: Any) -> str:
    """Return 32 hexadecimal digits that depend on every pixel, on the labels and on the order.

    Examples
    --------
    >>> images = np.zeros((2, 8, 8, 1), dtype=np.uint8)
    >>> fingerprint(images, ["a", "b"]) == fingerprint(images, ["b", "a"])
    False
    """
    digest = hashlib.blake2b(repr(np.asarray(labels).tolist()).encode(), digest_size=16)
    if isinstance(images, np.ndarray):
        digest.update(repr((images.shape, images.dtype.str)).encode())
        for start in range(0, len(images), _HASH_BATCH):
            digest.update(np.ascontiguousarray(images[start : start + _HASH_BATCH]).data)
    elif images is not None:
        for image in images:
            digest.update(repr((image.shape, image.dtype.str)).encode())
            digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


def image_digests(images: Iterable[np.ndarray]) -> list[bytes]:
    """Return a digest of six bytes for every image (height, width, channels)."""
    return [
        hashlib.blake2b(
            repr((image.shape, image.dtype.str)).encode() + image.tobytes(), digest_size=_DIGEST_BYTES
        ).digest()
        for image in images
    ]


def pack_digests(digests: Iterable[bytes]) -> str:
    """Return distinct digests as one text, sorted so that the order of the images is not stored.

    Examples
    --------
    >>> digests = image_digests(np.zeros((2, 8, 8, 1), dtype=np.uint8))
    >>> unpack_digests(pack_digests(digests)) == set(digests)
    True
    """
    return base64.b64encode(b"".join(sorted(set(digests)))).decode()


def unpack_digests(text: Any) -> set[bytes]:
    """Return the digests in a text from `pack_digests`, or an empty set for any other value."""
    try:
        packed = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return set()
    return {packed[start : start + _DIGEST_BYTES] for start in range(0, len(packed), _DIGEST_BYTES)}


@dataclass(frozen=True)
class LabelledImages:
    """Images (n, h, w, c) with their class numbers (n,), their groups (n,) or None, and their positions (n,) in X.

    The positions of validation images that were given separately follow those of X. Their perceptual hashes (n, 5) are
    kept if they were needed before. If `images` are only parts of larger ones, `whole` are these. If they are maps of a
    frozen network, `mirrored` may be those of the mirror images of some, at even distances.
    """

    images: LoadedImages
    numbers: np.ndarray
    groups: np.ndarray | None
    positions: np.ndarray
    hashes: np.ndarray | None = None
    whole: LoadedImages | None = None
    mirrored: LoadedImages | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def subset(self, indices: np.ndarray) -> "LabelledImages":
        """Return the images at the given indices."""
        groups, hashes = (None if part is None else part[indices] for part in (self.groups, self.hashes))
        return LabelledImages(self.images[indices], self.numbers[indices], groups, self.positions[indices], hashes)


@dataclass(frozen=True)
class TrainingData:
    """Checked training and validation images with their classes and form.

    Attributes
    ----------
    classes : array (n_classes,)
        The labels in sorted order; class numbers are positions in it.
    form : ImageForm
        The form of every image.
    train : LabelledImages
        Images to train on.
    validation : LabelledImages or None
        Images to select the epoch with.
    sizes : array (n, 2), optional
        Height and width of the images of X before they were resized.

    Groups also hold near-identical images together, unless that is switched off.
    """

    classes: np.ndarray
    form: ImageForm
    train: LabelledImages
    validation: LabelledImages | None
    sizes: np.ndarray | None = None

    def fingerprint(self) -> str:
        """Return a text that depends on every pixel, every label and the split into training and validation."""
        texts = [fingerprint(part.images, self.classes[part.numbers]) for part in self._parts]
        return texts[0] if len(texts) == 1 else fingerprint(None, texts)

    def digests(self) -> str:
        """Return the digests of all images as one text, by which training images can be recognised."""
        return pack_digests(digest for part in self._parts for digest in image_digests(part.images))

    def hashes(self) -> str:
        """Return the perceptual hashes of all images as one text, by which near-identical images can be recognised."""
        parts = [perceptual_hashes(part.images) if part.hashes is None else part.hashes for part in self._parts]
        return pack_hashes(np.concatenate(parts))

    def size_range(self) -> dict[str, list[int]] | None:
        """Return height and width of the smallest and of the largest image, by area, as JSON can hold them."""
        if self.sizes is None:
            return None
        areas = self.sizes.prod(axis=1)
        return {
            "smallest": self.sizes[int(areas.argmin())].tolist(),
            "largest": self.sizes[int(areas.argmax())].tolist(),
        }

    @property
    def _parts(self) -> list[LabelledImages]:
        return [self.train] if self.validation is None else [self.train, self.validation]


def check_training_data(
    X: Any,
    y: Any,
    groups: Any,
    validation: Any,
    fraction: float,
    random: np.random.Generator,
    *,
    row_shape: RowShape | None = None,
    split_duplicates: bool = False,
    verbose: bool = False,
) -> TrainingData:
    """Check images and labels, and hold out `fraction` of them if no validation set is given.

    Near-identical images are held together like those of a group, unless `split_duplicates`.
    """
    X = as_collection(X)
    images = load_any(X, row_shape=row_shape, verbose=verbose)
    if isinstance(X, ImageCollection):
        y, groups = X.labels if y is None else y, X.groups if groups is None else groups
    if y is None:
        raise ValueError("y is missing: fit needs a label for every image, as y or in the collection.")
    classes, numbers = check_labels(y, len(images))
    groups = None if groups is None else check_groups(groups, len(images))
    form = ImageForm(
        *pixel_format_of(images), X.preprocessing if isinstance(X, ImageCollection) else NO_PREPROCESSING, row_shape
    )
    all_images = LabelledImages(images, numbers, groups, np.arange(len(images)))
    if not split_duplicates:
        all_images = _with_near_duplicates(all_images)
    sizes = _source_sizes(X, images)
    if validation is not None:
        check_class_sizes(classes, numbers, smallest=2)
        checked = _check_validation(validation, form, classes, len(images))
        _check_no_shared_group(groups, checked.groups)
        checked = checked if split_duplicates else _with_near_duplicates(checked)
        return TrainingData(classes, form, all_images, checked, sizes)
    if fraction == 0:
        check_class_sizes(classes, numbers, smallest=2)
        return TrainingData(classes, form, all_images, None, sizes)
    check_class_sizes(classes, numbers, smallest=3, reason=" (one of them for validation, or validation_fraction=0)")
    remaining, held_out = _hold_out(all_images, groups, fraction, random)
    check_class_sizes(classes, numbers[remaining], smallest=2, reason=" after the validation images are held out")
    return TrainingData(classes, form, all_images.subset(remaining), all_images.subset(held_out), sizes)


def _source_sizes(X: Any, images: LoadedImages) -> np.ndarray:
    """Return height and width of images before they were resized; one row if all are the same."""
    if isinstance(X, ImageCollection):
        return X.source_sizes()
    return np.array([images.shape[1:3]]) if isinstance(images, np.ndarray) else images.sizes()


def _hold_out(
    images: LabelledImages, groups: np.ndarray | None, fraction: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Hold a part out, near-identical images on one side unless a class has too few different ones."""
    try:
        return hold_out(images.numbers, fraction, random, images.groups)
    except ValueError:
        if images.groups is groups:
            raise
    warnings.warn(
        "Near-identical images are on both sides of the split, because a class has too few different ones to keep them"
        " together: the accuracy on validation images may be too good.",
        LeakWarning,
        stacklevel=2,
    )
    return hold_out(images.numbers, fraction, random, groups)


def _with_near_duplicates(images: LabelledImages) -> LabelledImages:
    """Return the images with groups that also hold near-identical images together."""
    hashes = perceptual_hashes(images.images)
    return replace(images, groups=join_groups(images.groups, group_near(hashes), len(images)), hashes=hashes)


def _check_validation(validation: Any, form: ImageForm, classes: np.ndarray, n_before: int) -> LabelledImages:
    if isinstance(validation, ImageCollection):
        validation = (validation, validation.labels)
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise ValueError(f"validation must be a tuple (X, y) or a collection, got {type(validation).__name__}.")
    groups = validation[0].groups if isinstance(validation[0], ImageCollection) else None
    try:
        images = form.load(validation[0])
        found, numbers = check_labels(validation[1], len(images))
        groups = None if groups is None else check_groups(groups, len(images))
    except CollectionError:
        raise  # the message names the files
    except ValueError as error:
        raise ValueError(f"In the validation images: {error}") from error
    different = sorted(set(found.tolist()) ^ set(classes.tolist()), key=str)
    if different:
        raise ValueError(
            f"The validation labels must be those of the training images, {classes.tolist()};"
            f" only in one of them: {different}."
        )
    return LabelledImages(images, numbers, groups, n_before + np.arange(len(images)))


def _check_no_shared_group(groups: np.ndarray | None, validation_groups: np.ndarray | None) -> None:
    if groups is None or validation_groups is None:
        return
    shared = sorted(set(groups.tolist()) & set(validation_groups.tolist()), key=str)
    if shared:
        raise ValueError(
            f"{len(shared)} groups have training and validation images, among them {shared[:3]};"
            " split the images by group, or give X alone and let fit hold out validation images."
        )
