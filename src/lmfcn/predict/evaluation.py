"""Evaluate predictions: accuracies with confidence intervals, confusions, calibration, coverage."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lmfcn.data.collection import ImageCollection
from lmfcn.data.training_data import image_digests, unpack_digests
from lmfcn.model import TextureModel
from lmfcn.training.calibration import expected_calibration_error

N_RESAMPLES = 20_000
N_RESAMPLES_OF_GROUPS = 4000
CONFIDENCE = 0.95
_DRAWN_AT_ONCE = 2_000_000
_PRIOR = 0.5


@dataclass(frozen=True)
class Estimate:
    """A share of `n` images with the ends of its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


def balanced_recall(
    numbers: np.ndarray, right: np.ndarray, groups: np.ndarray | None = None
) -> tuple[Estimate, dict[int, Estimate]]:
    """Return the mean recall over the classes that occur, and the recall of each, with intervals.

    The intervals are those of a Bayesian bootstrap: images (or groups, whose images stand and fall together) get random
    weights. Half an image that is recognised and half a one that is not (Jeffreys' prior) are added to every class, so
    that a class without errors does not count as certain. The generator has a fixed seed: same input, same interval.

    Parameters
    ----------
    numbers : array (n,)
        True class of every image.
    right : array (n,) of bool
        Whether it was recognised.
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
    hits = np.array([right[numbers == number].sum() for number in occurring])
    random = np.random.default_rng(0)
    if groups is None:
        shape = (N_RESAMPLES, len(occurring))
        drawn = random.beta(hits + _PRIOR, totals - hits + _PRIOR, size=shape)
    else:
        per_group = [_per_group(numbers, chosen, groups, occurring) for chosen in (right, np.full(len(right), True))]
        drawn = np.concatenate(list(_draw_groups(per_group[0], per_group[1], random)))
    shares = hits / totals
    recalls = {
        int(number): _estimate(shares[i], drawn[:, i], int(totals[i])) for i, number in enumerate(occurring.tolist())
    }
    return _estimate(float(shares.mean()), drawn.mean(axis=1), len(numbers)), recalls


def _per_group(numbers: np.ndarray, chosen: np.ndarray, groups: np.ndarray, occurring: np.ndarray) -> np.ndarray:
    """Return how many of the chosen images each group has in each class (n_groups, n_occurring)."""
    names, membership = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), len(occurring)))
    np.add.at(counts, (membership[chosen], np.searchsorted(occurring, numbers[chosen])), 1)
    return counts


def _draw_groups(hits: np.ndarray, totals: np.ndarray, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield recalls (r, n_classes) under random weights of the groups; the prior counts as groups of mean size."""
    sizes = totals.sum(axis=0) / (totals > 0).sum(axis=0)
    at_once = max(1, _DRAWN_AT_ONCE // len(totals))
    for start in range(0, N_RESAMPLES_OF_GROUPS, at_once):
        n_drawn = min(at_once, N_RESAMPLES_OF_GROUPS - start)
        weights = random.standard_exponential((n_drawn, len(totals)))
        good, bad = random.gamma(_PRIOR, size=(2, n_drawn, len(sizes))) * sizes
        yield (weights @ hits + good) / (weights @ totals + good + bad)


def _estimate(value: float, drawn: np.ndarray, n_images: int) -> Estimate:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(value), min(float(low), float(value)), max(float(high), float(value)), n_images)


COVERAGES = (0.8, 0.9, 0.95)
"""Coverages of prediction sets that an evaluation looks at."""


@dataclass(frozen=True)
class Coverage:
    """The coverage that prediction sets aimed at (`promised`), the coverage found, and their mean number of classes."""

    promised: float
    found: float
    mean_size: float


@dataclass(frozen=True)
class Evaluation:
    """What is known about a model after it has been tried on labelled images.

    Attributes
    ----------
    classes : list of str
    n_groups : int or None
        Groups that the images belong to; intervals then are those of drawing groups, not images.
    accuracy : float
    balanced_accuracy : Estimate
        The mean of the recalls of all classes that occur.
    recalls : dict of str to Estimate
        For each class that occurs, the share of its images that is recognised.
    confusion : array (n_classes, n_classes)
        Images by true class (row) and predicted class (column).
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
        """Number of images that were looked at."""
        return int(self.confusion.sum())

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
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
            "coverage": [vars(coverage) for coverage in self.coverage],
        }


def evaluate(model: TextureModel, images: ImageCollection) -> Evaluation:
    """Try a model on labelled images; their groups widen the intervals as they should."""
    numbers = class_numbers_of(model, images.labels)
    return evaluate_predictions(model, numbers, model.predict_proba(images), images.groups)


def evaluate_predictions(
    model: TextureModel, numbers: np.ndarray, predicted: np.ndarray, groups: np.ndarray | None = None
) -> Evaluation:
    """Compare probabilities (n, n_classes) with true class numbers (n,).

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
    guesses = predicted.argmax(axis=1)
    confusion = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(confusion, (numbers, guesses), 1)
    balanced, recalls = balanced_recall(numbers, guesses == numbers, groups)
    true = predicted[np.arange(len(numbers)), numbers]
    wanted = np.eye(len(classes))[numbers]
    return Evaluation(
        classes=classes,
        n_groups=None if groups is None else len(np.unique(groups)),
        accuracy=float((guesses == numbers).mean()),
        balanced_accuracy=balanced,
        recalls={classes[number]: recall for number, recall in recalls.items()},
        confusion=confusion,
        calibration_error=expected_calibration_error(torch.from_numpy(numbers), torch.from_numpy(predicted)),
        log_loss=float(-np.log(np.maximum(true, np.finfo(float).tiny)).mean()),
        brier_score=float(np.square(predicted - wanted).sum(axis=1).mean()),
        coverage=_coverage(model, numbers, predicted),
    )


def class_numbers_of(model: TextureModel, labels: Any) -> np.ndarray:
    """Return the class number (n,) of every label, or name the labels that the model does not know.

    Labels are compared as text: a folder has no numbers for names.
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


def count_training_images(model: TextureModel, images: ImageCollection) -> int | None:
    """Return how many images the model was fitted on, pixel by pixel; None if its file does not tell."""
    known = unpack_digests(model.record.get("image_digests"))
    if not known:
        return None
    return sum(digest in known for digest in image_digests(images.preprocessed_for_model(model.form.preprocessing)))


def _coverage(model: TextureModel, numbers: np.ndarray, predicted: np.ndarray) -> list[Coverage]:
    if not model.calibration.held_out:
        return []
    found = []
    for promised in COVERAGES:
        sets = model.sets_of(predicted, promised)
        hit = sets[np.arange(len(numbers)), numbers]
        found.append(Coverage(promised, float(hit.mean()), float(sets.sum(axis=1).mean())))
    return found
