"""Learn from the labels so far: a whitened SVM, how good it is, and which labels it doubts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmfcn.label.space import FEWEST_PER_CLASS
from lmfcn.method.kernel_svm import Decision
from lmfcn.model import probabilities
from lmfcn.predict.evaluation import Estimate, balanced_recall
from lmfcn.recipe import Recipe
from lmfcn.training.calibration import fit_inverse_temperature
from lmfcn.training.final_svm import NEVER_HELD_OUT, SVMCandidate, fit_final_svm
from lmfcn.training.fit import cross_validation_folds

SHRINKAGE = 0.6
"""Of the whitening: chosen on frozen features of three sets (docs/research/label.md)."""

_SETTINGS = Recipe(standardize=False)
_USUAL_INVERSE_TEMPERATURE = 1.5
_GOOD_ENOUGH = 0.98
_LITTLE = 0.01


@dataclass(frozen=True)
class Judgement:
    """What cross-validation says about the labels so far.

    Attributes
    ----------
    n_labels : int
    accuracy : Estimate
        Balanced accuracy, with its interval.
    positions : array of int (m,)
        Images that were held out once.
    probabilities : array (m, n_classes)
        Each from an SVM that had not learnt from that image.
    numbers : array of int (m,)
        Their classes as labelled.
    inverse_temperature : float
    expected : float or None
        Share of the suggestions for images without a label that should be right, by their probabilities.
    distances : Tensor (m,) or None
        Squared distance of each held-out image to the nearest class centre, in the whitened space.
    """

    n_labels: int
    accuracy: Estimate
    positions: np.ndarray
    probabilities: np.ndarray
    numbers: np.ndarray
    inverse_temperature: float
    expected: float | None = None
    distances: Tensor | None = None

    def confusions(self) -> list[tuple[int, int, int]]:
        """Return (class, class, number of images) of pairs that are mixed up, the most frequent first."""
        predicted = self.probabilities.argmax(axis=1)
        wrong = predicted != self.numbers
        pairs = np.sort(np.stack([self.numbers[wrong], predicted[wrong]], axis=1), axis=1)
        found, counts = np.unique(pairs, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [(int(found[i, 0]), int(found[i, 1]), int(counts[i])) for i in order]

    def doubtful(self) -> np.ndarray:
        """Return images whose label is not the most probable class, the most doubtful first."""
        given = self.probabilities[np.arange(len(self.numbers)), self.numbers]
        wrong = np.flatnonzero(self.probabilities.argmax(axis=1) != self.numbers)
        return self.positions[wrong[np.argsort(given[wrong], kind="stable")]]


def fit(coordinates: Tensor, positions: np.ndarray, numbers: np.ndarray) -> Decision:
    """Return the SVM that the labels (m,) of some images make, in the whitened space of the coordinates (n, k)."""
    rows, labels = coordinates[torch.from_numpy(positions)], torch.from_numpy(numbers)
    folds = torch.full((len(labels),), NEVER_HELD_OUT)
    return fit_final_svm(rows, labels, folds, _SETTINGS, [_rule()]).decision


def predict(decision: Decision, coordinates: Tensor, judgement: Judgement | None) -> np.ndarray:
    """Return the probabilities (n, n_classes) of all images."""
    factor = _USUAL_INVERSE_TEMPERATURE if judgement is None else judgement.inverse_temperature
    return probabilities(decision.scores(coordinates), factor).numpy()


def judge(
    coordinates: Tensor, positions: np.ndarray, numbers: np.ndarray, groups: np.ndarray | None = None
) -> Judgement | None:
    """Cross-validate; None as long as there are too few labels to say anything.

    Parameters
    ----------
    coordinates : Tensor (n, k)
    positions, numbers : array of int (m,)
        The labelled images and their classes 0, 1, ...
    groups : array (n,), optional
        Images of one group are held out together.
    """
    counts = np.bincount(numbers)
    if len(counts) < 2 or counts.min() < FEWEST_PER_CLASS:
        return None
    own = None if groups is None else groups[positions]
    folds = cross_validation_folds(numbers, np.random.default_rng(0), own)
    held_out = folds != NEVER_HELD_OUT
    if len(np.unique(numbers[held_out])) < len(counts):
        return None
    rows, labels = coordinates[torch.from_numpy(positions)], torch.from_numpy(numbers)
    final = fit_final_svm(rows, labels, torch.from_numpy(folds), _SETTINGS, [_rule()])
    scores = final.held_out_scores
    factor = fit_inverse_temperature(scores, labels[torch.from_numpy(held_out)])
    predicted = probabilities(scores, factor).numpy()
    right = predicted.argmax(axis=1) == numbers[held_out]
    accuracy, _ = balanced_recall(numbers[held_out], right, None if own is None else own[held_out])
    judged = positions[held_out], predicted, numbers[held_out]
    return Judgement(len(numbers), accuracy, *judged, factor, distances=final.held_out_distances)


def _rule() -> SVMCandidate:
    return SVMCandidate(_SETTINGS.C, whiten=True, shrinkage=SHRINKAGE)


def what_is_missing(classes: Sequence[str], counts: Sequence[int]) -> str:
    """Say which labels are needed before an accuracy can be estimated.

    Parameters
    ----------
    classes : sequence of str
    counts : sequence of int
        Labels of each class.

    Examples
    --------
    >>> what_is_missing(["wood"], [4])
    'Give at least two classes a name.'
    >>> what_is_missing(["wood", "stone"], [4, 1])
    'Label at least 2 images of every class: stone has 1.'
    """
    if len(classes) < 2:
        return "Give at least two classes a name."
    few = [f"{name} has {count}" for name, count in zip(classes, counts, strict=True) if count < FEWEST_PER_CLASS]
    if not few:
        return "Label a few more images of every class, of different groups: the accuracy cannot be estimated yet."
    more = f" and {len(few) - 3} more" if len(few) > 3 else ""
    return f"Label at least {FEWEST_PER_CLASS} images of every class: {', '.join(few[:3])}{more}."


def describe_progress(classes: Sequence[str], curve: Sequence[Judgement]) -> str:
    """Say in plain sentences how good the model is, what it confuses, and whether more labels will help.

    Parameters
    ----------
    classes : sequence of str
        Those of the last judgement.
    curve : sequence of Judgement
        The judgements so far, the last one at the end.
    """
    last = curve[-1]
    accuracy = last.accuracy
    some_open = last.expected is not None
    sentences = [
        f"About {100 * last.expected:.0f} % of the suggestions should be right." if last.expected is not None else "",
        f"Balanced accuracy by cross-validation on {last.n_labels} labels: {accuracy.value:.2f}"
        f" ({accuracy.low:.2f} to {accuracy.high:.2f}){'; these are the harder images' if some_open else ''}.",
        _confusion(classes, last),
        _advice(curve),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _confusion(classes: Sequence[str], last: Judgement) -> str:
    pairs = last.confusions()
    if not pairs:
        return "No classes are mixed up."
    one, other, count = pairs[0]
    return f"Most mixed up: {classes[one]} and {classes[other]} ({count} image{'' if count == 1 else 's'})."


def _advice(curve: Sequence[Judgement]) -> str:
    last = curve[-1]
    if last.expected is None:
        return "Every image has a label: look at the doubtful ones, then finish."
    if last.expected >= _GOOD_ENOUGH:
        return "You can stop: look at the doubtful labels, accept the suggestions, and finish."
    before = next((point for point in reversed(curve) if point.n_labels <= last.n_labels * 2 / 3), None)
    if before is None:
        return "More labels will help."
    gain = max(last.accuracy.value - before.accuracy.value, last.expected - (before.expected or 0.0))
    if gain < _LITTLE:
        return (
            f"It has hardly changed since {before.n_labels} labels: label more of what is mixed up, or be content with"
            " it and finish."
        )
    return f"It has become better since {before.n_labels} labels: more labels will help."
