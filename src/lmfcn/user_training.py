"""Open a user's images, train a classifier on them and evaluate it: the work behind `lmfcn train`."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.benchmark.tasks import check_classes
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Color, SizeFit
from lmfcn.data.image_files import CollectionError, ImageError, describe_errors
from lmfcn.data.leaks import Duplicates, LeakWarning, check_split, find_duplicates
from lmfcn.data.near_duplicates import find_near, perceptual_hashes
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import Split
from lmfcn.data.training_data import image_digests
from lmfcn.maps.regions import open_regions
from lmfcn.maps.texture_map import USUAL_WINDOW
from lmfcn.method.history import TrainingWarning
from lmfcn.model_file import describe_model
from lmfcn.networks.registry import TEXTURE_FCN, find_network
from lmfcn.predict.evaluation import (
    Estimate,
    Evaluation,
    TrainingCopies,
    accuracy_without,
    class_numbers_of,
    evaluate_predictions,
    find_training_copies,
)
from lmfcn.recipe import change, find_recipe
from lmfcn.training.checkpoints import Checkpoints
from lmfcn.training.choose_network import NetworkChoice, choose_network
from lmfcn.training.forecast import Forecast, forecast_collection
from lmfcn.util.progress import format_seconds, step_progress

AUTO = "auto"
"""The network that cross-validation on the training images chooses."""

_PART_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Source:
    """A file or folder of images, and how to read it.

    Attributes
    ----------
    path : Path
        Anything that `open_collection` reads.
    size : int or None
        Side in pixels of all images; None leaves them as they are.
    color : "keep", "grey" or "rgb"
    groups : str or None
        Column of the table with the groups of images that belong together.
    skip_bad : bool
        Whether to leave out files that cannot be read.
    groups_from : str or None
        Pattern that finds the groups in the names of the files.
    fit : "crop", "pad" or "stretch"
        How images of another shape get the size.
    regions : Path or None
        GeoJSON with annotated regions of a large image at `path`; the images are tiles of these.
    tile : int
        Side of these tiles in pixels.
    resolution : float or None
        Micrometres per pixel of these tiles; by default the finest level of the file.
    """

    path: Path
    size: int | None = None
    color: Color = "keep"
    groups: str | None = None
    skip_bad: bool = False
    groups_from: str | None = None
    fit: SizeFit = "crop"
    regions: Path | None = None
    tile: int = USUAL_WINDOW
    resolution: float | None = None

    def open(self, *, verbose: bool = False) -> ImageCollection:
        """Return the labelled images; refuse images without labels, and files that cannot be read."""
        if self.regions is not None:
            return self._open_regions(self.regions)
        images = open_collection(self.path, group_column=self.groups, group_pattern=self.groups_from, color=self.color)
        if images.labels is None:
            raise ValueError(f"{self.path} has no labels; the class of every image must be known.")
        images = images if self.size is None else images.resized(self.size, self.fit)
        return check_readable(images, skip_bad=self.skip_bad, verbose=verbose)

    def _open_regions(self, regions: Path) -> ImageCollection:
        given = {"--groups": self.groups, "--groups-from": self.groups_from, "--size": self.size}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"With --regions the annotations are the groups and --tile is the size; leave out {wrong[0]}."
            )
        return open_regions(self.path, regions, self.tile, resolution=self.resolution, color=self.color)

    def with_path(self, path: Path | None) -> "Source | None":
        """Return a source of other images that are read the same way; without groups if it has no columns."""
        if path is None:
            return None
        has_columns = path.suffix.lower() in (".csv", ".tsv", ".npz")
        return replace(self, path=path, groups=self.groups if has_columns else None, regions=None)


@dataclass(frozen=True)
class SplitImages:
    """Training, validation and test images; without validation images, training holds out some of its own.

    Attributes
    ----------
    train : ImageCollection
    validation, test : ImageCollection or None
    left_out : list of ImageError
        Files that could not be read.
    notes : list of str
        Remarks about the data.
    duplicates : Duplicates
        Near-identical images among all images of the source.
    """

    train: ImageCollection
    validation: ImageCollection | None
    test: ImageCollection | None
    left_out: list[ImageError]
    notes: list[str]
    duplicates: Duplicates = field(default_factory=lambda: Duplicates([], [], []))


def open_split(
    source: Source, validation: Source | None = None, *, ignore_split: bool = False, verbose: bool = False
) -> SplitImages:
    """Open the images and split them as their table or folder says, if it does.

    Parameters
    ----------
    source : Source
    validation : Source, optional
        Validation images in another place.
    ignore_split : bool, default=False
        Whether to train on all images, whatever split they have.
    verbose : bool, default=False
        Show a progress bar.
    """
    images = source.open(verbose=verbose)
    check_classes(source.path, np.asarray(images.labels))
    extra = None if validation is None else validation.open(verbose=verbose)
    names = None if images.split is None or ignore_split else _part_names(source.path, images.split)
    if names is None:
        found = find_duplicates(images, verbose=verbose)
        return SplitImages(images, extra, None, images.left_out + _left_out(extra), [], found)
    if extra is not None and "val" in names:
        raise ValueError(f"{source.path} has validation images already; leave out --val, or give --ignore-split.")
    positions = [np.flatnonzero(names == name) for name in ("train", "val", "test")]
    notes, found = _find_leaks(images, Split(*positions), verbose=verbose)
    train, val, test = (images.subset(part) if len(part) else None for part in positions)
    if train is None:
        raise ValueError(f"{source.path} has a split without training images; give --ignore-split to train on all.")
    return SplitImages(train, val or extra, test, images.left_out + _left_out(extra), notes, found)


def select_part(images: ImageCollection, wanted: str | None = None) -> tuple[ImageCollection, str]:
    """Return one part of split images and its name: the wanted one, else the test part, else all images."""
    if wanted == "all" or (wanted is None and (images.split is None or "test" not in images.split)):
        return images, "all"
    return images.part(wanted or "test"), wanted or "test"


def check_readable(images: ImageCollection, *, skip_bad: bool, verbose: bool = False) -> ImageCollection:
    """Decode every image once; return those that can be used, or refuse the others with one error for all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # `left_out` holds the same
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
            f"{path} has a split with the names {', '.join(unknown[:5])}, but train, val and test are needed;"
            " rename them, or give --ignore-split to train on all images."
        )
    return np.array([_PART_NAMES[str(name)] for name in split.tolist()])


def _find_leaks(images: ImageCollection, split: Split, *, verbose: bool) -> tuple[list[str], Duplicates]:
    """Refuse groups in two parts of the split; return sentences about images that are in two parts, and duplicates."""
    found = find_duplicates(images, verbose=verbose)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeakWarning)
        check_split(images, split, found)
    return [str(warning.message) for warning in caught if issubclass(warning.category, LeakWarning)], found


@dataclass(frozen=True)
class EvaluatedPart:
    """Images that a model was not trained on, with its predictions and their evaluation.

    Attributes
    ----------
    part : str
        "test", "validation" or "cross-validated training".
    images : ImageCollection
    positions : array of int (n,)
        Positions in `images` of those that were evaluated.
    numbers : array of int (n,)
        True classes.
    probabilities : array (n, n_classes)
    evaluation : Evaluation
    copies : TrainingCopies
        Which of them have a near-identical image among those that their prediction was learnt from.
    """

    part: str
    images: ImageCollection
    positions: np.ndarray
    numbers: np.ndarray
    probabilities: np.ndarray
    evaluation: Evaluation
    copies: TrainingCopies | None = None

    @property
    def accuracy_without_copies(self) -> Estimate | None:
        """The balanced accuracy without images that have a near-identical training image; None if there are none."""
        if self.copies is None:
            return None
        groups = None if self.images.groups is None else self.images.groups[self.positions]
        return accuracy_without(self.copies.near, self.numbers, self.probabilities, groups)


@dataclass(frozen=True)
class TrainedModel:
    """A trained classifier with its images and its evaluation.

    Attributes
    ----------
    classifier : LMFCNClassifier
    parts : SplitImages
    held_out : EvaluatedPart or None
        The validation images, each predicted by an SVM that was not fitted to it; None if there are none.
    test : EvaluatedPart or None
    notes : list of str
        Remarks about data and training.
    """

    classifier: LMFCNClassifier
    parts: SplitImages
    held_out: EvaluatedPart | None
    test: EvaluatedPart | None
    notes: list[str]

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the training before its last epoch."""
        return self.classifier.interrupted_

    @property
    def epoch_score(self) -> float | None:
        """The score that selected the epoch; None without validation images, or with several networks."""
        score: float | None = describe_model(self.classifier.model_)["epoch_score"]
        return score

    @property
    def best_evaluated(self) -> EvaluatedPart | None:
        """The most trustworthy evaluation: of the test images, else of the held-out images."""
        return self.test or self.held_out


def forecast_training(
    images: ImageCollection, parameters: Mapping[str, Any], n_validation: int | None = None
) -> Forecast | None:
    """Return what a training with these parameters of `LMFCNClassifier` will take, of which a few images are tried."""
    classifier = LMFCNClassifier(**parameters)
    recipe, network = classifier.recipe_with_overrides(), find_network(classifier.network, classifier.weights)
    fraction = classifier.validation_fraction
    return forecast_collection(images, recipe, n_validation, fraction, classifier.device, network)


def _within_budget(
    parts: SplitImages, parameters: Mapping[str, Any], minutes: float, announce: Callable[[str], None]
) -> dict[str, Any]:
    """Return the parameters with fewer passes and epochs if the training would take longer than so many minutes."""
    stored = None if parameters.get("checkpoint_dir") is None else Checkpoints.open(parameters["checkpoint_dir"])
    values = {} if stored is None else stored.parameters()
    if {"epochs", "refit_epochs", "passes"} <= set(values):
        changes = {name: values[name] for name in ("epochs", "refit_epochs", "passes")}
        announce(f"Budget: epochs and passes are those of the checkpoints in {stored.folder if stored else ''}.")
    else:
        n_validation = None if parts.validation is None else len(parts.validation)
        expected = forecast_training(parts.train, parameters, n_validation)
        if expected is None:
            return dict(parameters)
        found = expected.within(minutes)
        announce(_describe_budget(expected, found, minutes))
        changes = {name: getattr(found.recipe, name) for name in ("epochs", "refit_epochs", "passes")}
    return {**parameters, "recipe": change(parameters.get("recipe", "default"), changes), "epochs": None}


def _describe_budget(expected: Forecast, found: Forecast, minutes: float) -> str:
    recipe = found.recipe
    chosen = f"--epochs {recipe.n_epochs} --refit-epochs {recipe.n_refit_epochs} --passes {recipe.n_passes}"
    if found.seconds > 60 * minutes:
        return (
            f"Budget: even with {chosen}, training takes {found.describe()}, more than {minutes:g} minutes;"
            " a smaller --size is faster."
        )
    if found is expected:
        return f"Budget: nothing has to change; training takes {found.describe()}."
    return f"Budget: {chosen}, which takes {found.describe()} instead of {format_seconds(expected.seconds)}."


def train_model(
    parts: SplitImages,
    parameters: Mapping[str, Any],
    *,
    announce: Callable[[str], None],
    budget: float | None = None,
) -> TrainedModel:
    """Fit a classifier and evaluate it; the record of its model holds the result.

    Parameters
    ----------
    parts : SplitImages
    parameters : mapping
        Parameters of `LMFCNClassifier`; the network may also be "auto", which chooses it by cross-validation.
    announce : callable
        Called with a sentence before each step that may take long.
    budget : float, optional
        Minutes that the training may take, once the network is chosen.
    """
    parameters, choice = _with_network(parts.train, parameters, announce)
    if budget is not None:
        parameters = _within_budget(parts, parameters, budget, announce)
    classifier = LMFCNClassifier(**parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainingWarning)
        classifier.fit(parts.train, validation=parts.validation)
    messages = [str(warning.message) for warning in caught if issubclass(warning.category, TrainingWarning)]
    classifier.model_.record["random_state"] = parameters.get("random_state")
    if choice is not None:
        classifier.model_.record["network_choice"] = choice.as_dict()
    held_out = _evaluate_held_out(classifier, parts)
    if held_out is not None:
        classifier.model_.record["held_out"]["interval"] = vars(held_out.evaluation.balanced_accuracy)
    test = None
    if parts.test is not None:
        announce(f"Testing on {len(parts.test)} images.")
        with step_progress("Testing", visible=bool(parameters.get("verbose"))):
            test = _evaluate_test(classifier, parts.test)
        classifier.model_.record["test"] = {
            "n_images": test.evaluation.n_images,
            "balanced_accuracy": vars(test.evaluation.balanced_accuracy),
        }
    return TrainedModel(classifier, parts, held_out, test, parts.notes + messages)


def _with_network(
    images: ImageCollection, parameters: Mapping[str, Any], announce: Callable[[str], None]
) -> tuple[dict[str, Any], NetworkChoice | None]:
    """Return the parameters with a network instead of "auto", and how it was chosen."""
    parameters = dict(parameters)
    if parameters.get("network") != AUTO:
        return parameters, None
    announce("Choosing between a pretrained network and the start from scratch.")
    choice = choose_network(
        images,
        find_recipe(parameters.get("recipe", "default")),
        weights=parameters.get("weights"),
        seed=parameters.get("random_state") or 0,
        device=parameters.get("device", "auto"),
        verbose=parameters.get("verbose", False),
    )
    announce(f"Network: {choice.reason} {choice.cost}".rstrip())
    parameters["network"] = choice.network
    if choice.network == TEXTURE_FCN:
        parameters.pop("weights", None)
    return parameters, choice


def _evaluate_held_out(classifier: LMFCNClassifier, parts: SplitImages) -> EvaluatedPart | None:
    found = classifier.held_out_
    if len(found.numbers) == 0:
        return None
    n_train = len(parts.train)
    images = parts.train if parts.validation is None else parts.validation
    positions = found.positions if parts.validation is None else found.positions - n_train
    groups = None if images.groups is None else images.groups[positions]
    evaluation = evaluate_predictions(classifier.model_, found.numbers, found.probabilities, groups)
    if found.seen:
        return EvaluatedPart(
            "cross-validated training", images, positions, found.numbers, found.probabilities, evaluation
        )
    copies = _copies_of_others(images, positions, parts.train)
    return EvaluatedPart("validation", images, positions, found.numbers, found.probabilities, evaluation, copies)


def _copies_of_others(images: ImageCollection, positions: np.ndarray, train: ImageCollection) -> TrainingCopies:
    """Return which images have a near-identical one among the training images that are not evaluated themselves."""
    others = train if images is not train else train.subset(np.delete(np.arange(len(train)), positions))
    evaluated = images.subset(positions)
    digests = set(image_digests(others))
    exact = np.array([digest in digests for digest in image_digests(evaluated)])
    return TrainingCopies(exact, exact | find_near(perceptual_hashes(evaluated), perceptual_hashes(others)))


def _evaluate_test(classifier: LMFCNClassifier, images: ImageCollection) -> EvaluatedPart:
    numbers = class_numbers_of(classifier.model_, images.labels)
    predicted = classifier.predict_proba(images)
    evaluation = evaluate_predictions(classifier.model_, numbers, predicted, images.groups)
    copies = find_training_copies(classifier.model_, images)
    return EvaluatedPart("test", images, np.arange(len(images)), numbers, predicted, evaluation, copies)
