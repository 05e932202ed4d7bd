"""What `lmfcn train` and `lmfcn evaluate` do with a user's own images."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.benchmark.tasks import check_classes
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Color
from lmfcn.data.image_files import CollectionError, ImageError, describe_errors
from lmfcn.data.leaks import LeakWarning, check_split
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import Split
from lmfcn.method.history import TrainingWarning
from lmfcn.predict.evaluation import Evaluation, class_numbers_of, evaluate_predictions

_PART_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Source:
    """Where images come from and how they are read.

    Attributes
    ----------
    path : Path
        Whatever `open_collection` reads.
    size : int or None
        Side in pixels to bring all images to.
    color : "keep", "grey" or "rgb"
    groups : str or None
        Column of the table that tells which images belong together.
    skip_bad : bool
        Whether files that cannot be read are left out.
    """

    path: Path
    size: int | None = None
    color: Color = "keep"
    groups: str | None = None
    skip_bad: bool = False

    def open(self, *, verbose: bool = False) -> ImageCollection:
        """Return the labelled images; refuse what has no labels, and files that cannot be read."""
        images = open_collection(self.path, group_column=self.groups, color=self.color)
        if images.labels is None:
            raise ValueError(f"{self.path} has no labels; the class of every image must be known.")
        images = images if self.size is None else images.resized(self.size)
        return only_sound(images, skip_bad=self.skip_bad, verbose=verbose)

    def beside(self, path: Path | None) -> "Source | None":
        """Return other images that are read the same way; those without columns cannot have one for groups."""
        if path is None:
            return None
        has_columns = path.suffix.lower() in (".csv", ".tsv", ".npz")
        return replace(self, path=path, groups=self.groups if has_columns else None)


@dataclass(frozen=True)
class OwnParts:
    """Images to learn from, to choose by and to test on; without the second, a part of the first is held out."""

    train: ImageCollection
    validation: ImageCollection | None
    test: ImageCollection | None
    left_out: list[ImageError]
    notes: list[str]


def open_parts(
    source: Source, validation: Source | None = None, *, ignore_split: bool = False, verbose: bool = False
) -> OwnParts:
    """Open the images and take them apart as they are divided, if they are.

    Parameters
    ----------
    source : Source
    validation : Source, optional
        Images to choose the epoch by that lie elsewhere.
    ignore_split : bool, default=False
        Whether a division that the images bring is given up.
    verbose : bool, default=False
        Show a progress bar.
    """
    images = source.open(verbose=verbose)
    check_classes(source.path, np.asarray(images.labels))
    chosen = None if validation is None else validation.open(verbose=verbose)
    names = None if images.split is None or ignore_split else _part_names(source.path, images.split)
    if names is None:
        return OwnParts(images, chosen, None, images.left_out + _left_out(chosen), [])
    if chosen is not None and "val" in names:
        raise ValueError(f"{source.path} has validation images already; leave out --val, or give --ignore-split.")
    positions = [np.flatnonzero(names == name) for name in ("train", "val", "test")]
    notes = _leaks(images, Split(*positions), verbose=verbose)
    train, val, test = (images.subset(part) if len(part) else None for part in positions)
    if train is None:
        raise ValueError(f"{source.path} is divided, but has no images for training; give --ignore-split to use all.")
    return OwnParts(train, val or chosen, test, images.left_out + _left_out(chosen), notes)


def part_to_test_on(images: ImageCollection, wanted: str | None = None) -> tuple[ImageCollection, str]:
    """Return a part of divided images and its name: the test part unless another is wanted; else all of them."""
    if wanted == "all" or (wanted is None and (images.split is None or "test" not in images.split)):
        return images, "all"
    return images.part(wanted or "test"), wanted or "test"


def only_sound(images: ImageCollection, *, skip_bad: bool, verbose: bool = False) -> ImageCollection:
    """Decode every image once; refuse files that cannot be used, all at once, or leave them out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what is left out is told by `left_out`
            return images.checked("skip" if skip_bad else "raise", verbose=verbose)
    except CollectionError as error:
        cure = "Repair or remove them, or leave them out with --skip-bad."
        raise ValueError(f"{describe_errors(error.errors)}\n{cure}") from error


def _left_out(images: ImageCollection | None) -> list[ImageError]:
    return [] if images is None else images.left_out


def _part_names(path: Path, split: np.ndarray) -> np.ndarray:
    """Return train, val or test for every image."""
    unknown = sorted({str(name) for name in split.tolist()} - set(_PART_NAMES))
    if unknown:
        raise ValueError(
            f"{path} is divided into parts with the names {', '.join(unknown[:5])}, but train, val and test are needed;"
            " rename them, or give --ignore-split to use all images for training."
        )
    return np.array([_PART_NAMES[str(name)] for name in split.tolist()])


def _leaks(images: ImageCollection, parts: Split, *, verbose: bool) -> list[str]:
    """Refuse groups on two sides; return a sentence about images that are on two sides."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeakWarning)
        check_split(images, parts, verbose=verbose)
    return [str(warning.message) for warning in caught if issubclass(warning.category, LeakWarning)]


@dataclass(frozen=True)
class Judged:
    """Images with what a model says about them that has not learnt from them."""

    part: str
    images: ImageCollection
    positions: np.ndarray
    numbers: np.ndarray
    probabilities: np.ndarray
    evaluation: Evaluation


@dataclass(frozen=True)
class OwnModel:
    """A trained model, what it comes from and how good it is.

    Attributes
    ----------
    classifier : LMFCNClassifier
    parts : OwnParts
    held_out : Judged
        The validation images, each judged by an SVM that had not learnt from it.
    test : Judged or None
    notes : list of str
        What the user should know about data and training.
    """

    classifier: LMFCNClassifier
    parts: OwnParts
    held_out: Judged | None
    test: Judged | None
    notes: list[str]

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the training before its last epoch."""
        return self.classifier.interrupted_

    @property
    def judged(self) -> Judged | None:
        """What the model should be judged by: the test images, else those that were held out."""
        return self.test or self.held_out


def train_on(parts: OwnParts, parameters: Mapping[str, Any], *, announce: Callable[[str], None]) -> OwnModel:
    """Fit a classifier and judge it; the record of its model tells how it did.

    Parameters
    ----------
    parts : OwnParts
    parameters : mapping
        Of `LMFCNClassifier`.
    announce : callable
        Called with a sentence before each step that may take a while.
    """
    classifier = LMFCNClassifier(**parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainingWarning)
        classifier.fit(parts.train, validation=parts.validation)
    messages = [str(warning.message) for warning in caught if issubclass(warning.category, TrainingWarning)]
    classifier.model_.record["random_state"] = parameters.get("random_state")
    held_out = _held_out(classifier, parts)
    test = None
    if parts.test is not None:
        announce(f"Testing on {len(parts.test)} images.")
        test = _test(classifier, parts.test)
        classifier.model_.record["test"] = {
            "n_images": test.evaluation.n_images,
            "balanced_accuracy": vars(test.evaluation.balanced_accuracy),
        }
    return OwnModel(classifier, parts, held_out, test, parts.notes + messages)


def _held_out(classifier: LMFCNClassifier, parts: OwnParts) -> Judged | None:
    found = classifier.held_out_
    if len(found.numbers) == 0:
        return None
    n_train = len(parts.train)
    images = parts.train if parts.validation is None else parts.validation
    positions = found.positions if parts.validation is None else found.positions - n_train
    groups = None if images.groups is None else images.groups[positions]
    evaluation = evaluate_predictions(classifier.model_, found.numbers, found.probabilities, groups)
    name = "cross-validated training" if found.seen else "validation"
    return Judged(name, images, positions, found.numbers, found.probabilities, evaluation)


def _test(classifier: LMFCNClassifier, images: ImageCollection) -> Judged:
    numbers = class_numbers_of(classifier.model_, images.labels)
    predicted = classifier.predict_proba(images)
    evaluation = evaluate_predictions(classifier.model_, numbers, predicted, images.groups)
    return Judged("test", images, np.arange(len(images)), numbers, predicted, evaluation)
