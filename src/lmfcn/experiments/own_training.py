"""A model of the user's own images: trained, judged by what was held out, and tested if there is a test part."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmfcn.algorithm.errors import TrainingWarning
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.own_parts import OwnParts
from lmfcn.inference.evaluation import Evaluation, class_numbers_of, evaluate_predictions


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
