"""Evaluate predictions: accuracies with confidence intervals, confusion matrix, calibration, coverage."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lmfcn.data.collection import ImageCollection
from lmfcn.data.near_duplicates import find_near, perceptual_hashes, unpack_hashes
from lmfcn.data.training_data import image_digests, unpack_digests
from lmfcn.model import TextureModel
from lmfcn.training.calibration import expected_calibration_error

COVERAGES = (0.8, 0.9, 0.95)
"""Target coverages of the prediction sets that an evaluation measures."""

N_RESAMPLES = 20_000
N_GROUP_RESAMPLES = 4000
CONFIDENCE = 0.95
_MAX_DRAWN = 2_000_000
_PRIOR = 0.5  # of Jeffreys, added to hits and misses


@dataclass(frozen=True)
class Estimate:
    """A fraction of `n` images with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Coverage:
    """Target and measured coverage of prediction sets, and their mean number of classes."""

    target: float
    found: float
    mean_size: float


@dataclass(frozen=True)
class Evaluation:
    """Results of a model on labelled images.

    Attributes
    ----------
    classes : list of str
    n_groups : int or None
        Number of groups, if there are any; the intervals then come from resampling groups, not images.
    accuracy : float
    balanced_accuracy : Estimate
        Mean recall of all classes that occur.
    recalls : dict of str to Estimate
        Recall of each class that occurs.
    confusion : array (n_classes, n_classes)
        Number of images by true class (row) and predicted class (column).
    calibration_error, log_loss, brier_score : float
    coverage : list of Coverage
        Empty for a model without prediction sets.
    """

    classes: list[str]
    n_groups: int | None
    accuracy: float
    balanced_accuracy: Estimate
    recalls: dict[str, Estimate]
    confusion: np.ndarray
    calibration_error: float
    log_loss: float
    brier_score: float
    coverage: list[Coverage]

    @property
    def n_images(self) -> int:
        """Number of evaluated images."""
        return int(self.confusion.sum())

    def as_dict(self) -> dict[str, Any]:
        """Return all values as types that JSON supports."""
        return {
            "n_images": self.n_images,
            "n_groups": self.n_groups,
            "balanced_accuracy": vars(self.balanced_accuracy),
            "accuracy": self.accuracy,
            "recalls": {label: vars(recall) for label, recall in self.recalls.items()},
            "confusion": {"classes": self.classes, "counts": self.confusion.tolist()},
            "calibration_error": self.calibration_error,
            "log_loss": self.log_loss,
            "brier_score": self.brier_score,
            "coverage": [
                {"promised": entry.target, "found": entry.found, "mean_size": entry.mean_size}
                for entry in self.coverage
            ],
        }


def evaluate(model: TextureModel, images: ImageCollection) -> Evaluation:
    """Evaluate a model on labelled images; the intervals take their groups into account."""
    numbers = class_numbers_of(model, images.labels)
    return evaluate_predictions(model, numbers, model.predict_proba(images), images.groups)


def evaluate_predictions(
    model: TextureModel, numbers: np.ndarray, predicted: np.ndarray, groups: np.ndarray | None = None
) -> Evaluation:
    """Evaluate probabilities (n, n_classes) against true class numbers (n,).

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> model = LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_
    >>> found = evaluate_predictions(model, y, model.predict_proba(X))
    >>> found.n_images, found.confusion.shape
    (40, (2, 2))
    """
    classes = [str(label) for label in model.classes.tolist()]
    predicted_numbers = predicted.argmax(axis=1)
    confusion = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(confusion, (numbers, predicted_numbers), 1)
    balanced, recalls = balanced_recall(numbers, predicted_numbers == numbers, groups)
    true_probabilities = predicted[np.arange(len(numbers)), numbers]
    one_hot = np.eye(len(classes))[numbers]
    return Evaluation(
        classes=classes,
        n_groups=None if groups is None else len(np.unique(groups)),
        accuracy=float((predicted_numbers == numbers).mean()),
        balanced_accuracy=balanced,
        recalls={classes[number]: recall for number, recall in recalls.items()},
        confusion=confusion,
        calibration_error=expected_calibration_error(torch.from_numpy(numbers), torch.from_numpy(predicted)),
        log_loss=float(-np.log(np.maximum(true_probabilities, np.finfo(float).tiny)).mean()),
        brier_score=float(np.square(predicted - one_hot).sum(axis=1).mean()),
        coverage=_measure_coverage(model, numbers, predicted),
    )


def class_numbers_of(model: TextureModel, labels: Any) -> np.ndarray:
    """Return the class number (n,) of every label, or raise an error that names unknown labels.

    Labels are compared as text, since names of folders are text even if the model was fitted on numbers.
    """
    if labels is None:
        raise ValueError("The images have no labels; an evaluation needs the class of every image.")
    known: Mapping[str, int] = {str(label): number for number, label in enumerate(model.classes.tolist())}
    texts = [str(label) for label in np.asarray(labels).tolist()]
    unknown = sorted(set(texts) - set(known))
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        names, classes = ", ".join(map(repr, unknown[:5])), ", ".join(map(repr, list(known)[:20]))
        raise ValueError(f"The images have labels that the model does not know: {names}{more}; it knows {classes}.")
    return np.array([known[text] for text in texts])


@dataclass(frozen=True)
class TrainingCopies:
    """Which evaluated images the model knows from its training.

    Attributes
    ----------
    exact : array of bool (n,)
        Images with exactly the pixels of a training image.
    near : array of bool (n,)
        Images that are near-identical to a training image, exact copies among them.
    complete : bool
        Whether near-identical images were looked for. Earlier model files hold no perceptual hashes: `near` is
        then the same as `exact`.
    """

    exact: np.ndarray
    near: np.ndarray
    complete: bool = True

    def sentence(self, without: Estimate | None, noun: str = "image") -> str:
        """Say how many images have a near-identical training image, and the balanced accuracy without them."""
        n_near, n_exact = int(self.near.sum()), int(self.exact.sum())
        what = "a near-identical training image" if self.complete else "an exact copy among the training images"
        if n_near == 0:
            return f"None of the {len(self.near)} {noun}s has {what}."
        verb = "has" if n_near == 1 else "have"
        copies = f", {n_exact} of them an exact copy" if self.complete and n_exact else ""
        if without is None:
            return (
                f"{n_near} of the {len(self.near)} {noun}s {verb} {what}{copies}; on new images the model may be worse."
            )
        return (
            f"{n_near} of the {len(self.near)} {noun}s {verb} {what}{copies}; without them the balanced accuracy is"
            f" {without.value:.3f} ({without.low:.3f} to {without.high:.3f}) on {without.n} {noun}s."
        )


def find_training_copies(model: TextureModel, images: ImageCollection) -> TrainingCopies | None:
    """Return which images the model knows from its training; None if its file holds neither digests nor hashes."""
    digests, hashes = unpack_digests(model.record.get("image_digests")), unpack_hashes(model.record.get("image_hashes"))
    if not digests:
        return None
    images = images.preprocessed_for_model(model.form.preprocessing)
    exact = np.array([digest in digests for digest in image_digests(images)])
    if hashes is None:
        return TrainingCopies(exact, exact, complete=False)
    return TrainingCopies(exact, exact | find_near(perceptual_hashes(images), hashes))


def accuracy_without(
    left_out: np.ndarray, numbers: np.ndarray, predicted: np.ndarray, groups: np.ndarray | None = None
) -> Estimate | None:
    """Return the balanced accuracy without some images (n,); None if none or all of them are left out."""
    kept = ~left_out
    if kept.all() or not kept.any():
        return None
    correct = predicted[kept].argmax(axis=1) == numbers[kept]
    return balanced_recall(numbers[kept], correct, None if groups is None else groups[kept])[0]


def _measure_coverage(model: TextureModel, numbers: np.ndarray, predicted: np.ndarray) -> list[Coverage]:
    if not model.calibration.held_out:
        return []
    found = []
    for target in COVERAGES:
        sets = model.sets_of(predicted, target)
        covered = sets[np.arange(len(numbers)), numbers]
        found.append(Coverage(target, float(covered.mean()), float(sets.sum(axis=1).mean())))
    return found


def balanced_recall(
    numbers: np.ndarray, correct: np.ndarray, groups: np.ndarray | None = None
) -> tuple[Estimate, dict[int, Estimate]]:
    """Return the mean recall over the classes that occur, and the recall of each, with intervals.

    The intervals come from a Bayesian bootstrap: images (or whole groups of images) get random weights. Jeffreys' prior
    adds half a correct and half a wrong image to every class, so that a class without errors does not get an interval
    of length 0. The seed is fixed: the same input gives the same interval.

    Parameters
    ----------
    numbers : array (n,)
        True class of every image.
    correct : array (n,) of bool
        Whether the prediction is correct.
    groups : array (n,), optional

    Examples
    --------
    >>> numbers = np.repeat([0, 1], 50)
    >>> balanced, recalls = balanced_recall(numbers, np.arange(100) < 95)
    >>> balanced.value, recalls[0].value, recalls[1].value
    (0.95, 1.0, 0.9)
    >>> balanced.low < 0.95 < balanced.high < 1
    True
    """
    occurring = np.unique(numbers)
    totals = np.array([(numbers == number).sum() for number in occurring])
    hits = np.array([correct[numbers == number].sum() for number in occurring])
    random = np.random.default_rng(0)
    if groups is None:
        shape = (N_RESAMPLES, len(occurring))
        drawn = random.beta(hits + _PRIOR, totals - hits + _PRIOR, size=shape)
    else:
        group_hits = _count_per_group(numbers, correct, groups, occurring)
        group_totals = _count_per_group(numbers, np.full(len(correct), True), groups, occurring)
        drawn = np.concatenate(list(_draw_groups(group_hits, group_totals, random)))
    recalls = hits / totals
    per_class = {
        int(number): _estimate(recalls[i], drawn[:, i], int(totals[i])) for i, number in enumerate(occurring.tolist())
    }
    return _estimate(float(recalls.mean()), drawn.mean(axis=1), len(numbers)), per_class


def _count_per_group(
    numbers: np.ndarray, selected: np.ndarray, groups: np.ndarray, occurring: np.ndarray
) -> np.ndarray:
    """Return the number of selected images of each group in each class (n_groups, n_occurring)."""
    names, group_indices = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), len(occurring)))
    np.add.at(counts, (group_indices[selected], np.searchsorted(occurring, numbers[selected])), 1)
    return counts


def _draw_groups(hits: np.ndarray, totals: np.ndarray, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield recalls (r, n_classes) under random weights of groups; the prior is weighted as groups of mean size."""
    sizes = totals.sum(axis=0) / (totals > 0).sum(axis=0)
    batch = max(1, _MAX_DRAWN // len(totals))
    for start in range(0, N_GROUP_RESAMPLES, batch):
        n_drawn = min(batch, N_GROUP_RESAMPLES - start)
        weights = random.standard_exponential((n_drawn, len(totals)))
        prior_hits, prior_misses = random.gamma(_PRIOR, size=(2, n_drawn, len(sizes))) * sizes
        yield (weights @ hits + prior_hits) / (weights @ totals + prior_hits + prior_misses)


def _estimate(value: float, drawn: np.ndarray, n_images: int) -> Estimate:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(value), min(float(low), float(value)), max(float(high), float(value)), n_images)
