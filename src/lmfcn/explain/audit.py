"""Audit a training set: rank its images by how likely they are mislabelled."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.baselines.network_svm import RandomFCN
from lmfcn.classifier import LMFCNClassifier
from lmfcn.compute.resources import check_kernel_memory
from lmfcn.data.arrays import check_class_sizes, check_labels
from lmfcn.data.collection import ImageCollection
from lmfcn.data.near_duplicates import Group, join_groups
from lmfcn.data.splits import check_groups
from lmfcn.method.kernel_svm import class_numbers, gamma_from_scale, latent_scale, rbf_kernel, squared_distances
from lmfcn.model import probabilities
from lmfcn.model_file import load
from lmfcn.networks.registry import TEXTURE_FCN, NetworkName
from lmfcn.recipe import Recipe
from lmfcn.training.calibration import fit_inverse_temperature
from lmfcn.training.final_svm import NEVER_HELD_OUT, SVMCandidate, choose_candidate, fixed
from lmfcn.training.fit import cross_validation_folds
from lmfcn.util.files import write_text
from lmfcn.util.progress import item_progress


def latents_for_audit(
    images: ImageCollection,
    model: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    *,
    quick: bool = False,
    network: NetworkName | nn.Module = TEXTURE_FCN,
    verbose: bool = False,
) -> tuple[np.ndarray, str]:
    """Return latents (n, phi) of labelled images, and a sentence that says which network encoded them.

    Parameters
    ----------
    images : ImageCollection
    model : Path, optional
        File of a fitted model; by default a model is trained on the images.
    seed : int
    device : str
        Device for encoding and training.
    quick : bool
        Use an untrained network, which has not seen the labels.
    network : str or torch.nn.Module
        The `network` of the classifier that is trained; with a model, the module that its file needs, if any.
    verbose : bool
        Show progress.
    """
    if model is not None:
        loaded = load(model, device, network=network if isinstance(network, nn.Module) else None)
        return loaded.latents(images).cpu().numpy(), f"The images were encoded by the model {model}."
    if quick:
        untrained = RandomFCN(
            pooling="all", first_filters="decorrelated", device=device, random_state=seed, verbose=verbose
        )
        return untrained.fit(images).transform(images), "The images were encoded by an untrained network."
    # Without refit epochs the network learns the labels of fewer images, and so fewer wrong ones by heart.
    trained = LMFCNClassifier(
        network=network, recipe=Recipe(refit_epochs=0), device=device, random_state=seed, verbose=verbose
    ).fit(images)
    latents = trained.model_.latents(images).cpu().numpy()
    return latents, "The images were encoded by a model that was trained on them as they are labelled."


REPEATS = 5
"""Number of cross-validations, each with other folds."""

LOW_ACCURACY = 0.9
"""Below this balanced accuracy most images that the SVMs misclassify are their errors, not those of the labels.

With 5 % planted errors, about half of the disagreements were wrong labels at 0.90, and a fifth at 0.81
(docs/research/explanations.md).
"""

_AT_BOUND = 1 - 1e-6  # fraction of C above which a coefficient is at its bound


@dataclass(frozen=True)
class Audit:
    """Evidence for wrong labels and near-identical images in a training set.

    Attributes
    ----------
    classes : array (n_classes,)
        Labels in sorted order.
    numbers : array of int (n,)
        The given class of each image, as a position in `classes`.
    probabilities : array (n, n_classes)
        Cross-validated probability of each class, mean over all repeats; NaN for images that cannot be held out
        because their class (or a class in their group) is too small.
    misclassified : array (n,)
        Fraction of the repeats in which the cross-validated SVM predicted another class than the given one.
    bounded : array of bool (n,)
        Whether the image violates the margin of the SVM on all images: a support vector at its bound.
    near_identical : list of tuple of int
        Groups of near-identical images, each in ascending order; they are held out together.
    near_identical_to : array of int (n,)
        The image of the same group with the nearest latent, one of another class if there is any; -1 if there is none.
    order : array of int (n,)
        All images, the most doubtful label first: images that are near-identical to an image of another class, then
        by the probability of the given class.
    """

    classes: np.ndarray
    numbers: np.ndarray
    probabilities: np.ndarray
    misclassified: np.ndarray
    bounded: np.ndarray
    near_identical: list[Group]
    near_identical_to: np.ndarray
    order: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def conflicting(self) -> np.ndarray:
        """Whether each image (n,) is near-identical to one of another class: a label is wrong, or classes overlap."""
        return _find_conflicting(self.numbers, self.near_identical_to)

    @property
    def given_probability(self) -> np.ndarray:
        """The probability (n,) of the given class of each image."""
        return self.probabilities[np.arange(len(self)), self.numbers]

    @property
    def likeliest(self) -> np.ndarray:
        """The most probable class (n,) of each image, or the given class if the image was not held out."""
        return np.where(np.isnan(self.given_probability), self.numbers, self.probabilities.argmax(axis=1))

    @property
    def disagreeing(self) -> np.ndarray:
        """Images that look like another class or are near-identical to one of another class, most doubtful first.

        With a low `balanced_accuracy`, most of their labels are right.
        """
        doubtful = (self.likeliest != self.numbers) | self.conflicting
        return self.order[doubtful[self.order]]

    @property
    def balanced_accuracy(self) -> float:
        """The cross-validated balanced accuracy by the given labels; NaN if no image could be held out."""
        held_out = ~np.isnan(self.given_probability)
        right = (self.likeliest == self.numbers)[held_out]
        classes = self.numbers[held_out]
        return float(np.mean([right[classes == number].mean() for number in np.unique(classes)] or [math.nan]))

    @property
    def is_weak(self) -> bool:
        """Whether the cross-validated accuracy is too low to call labels wrong."""
        return not self.balanced_accuracy >= LOW_ACCURACY


def audit(
    latents: np.ndarray,
    labels: Any,
    groups: Any = None,
    repeats: int = REPEATS,
    *,
    near_identical: Sequence[Group] = (),
    split_duplicates: bool = False,
    verbose: bool = False,
) -> Audit:
    """Rank images by how doubtful their labels are, by cross-validation on their latents.

    Parameters
    ----------
    latents : array (n, phi)
        From `TextureModel.latents`. Those of `transform` are unsuitable: they are whitened with the labels in question.
    labels : array-like (n,)
    groups : array-like (n,), optional
        Images of one group are held out together.
    repeats : int
        Number of cross-validations, each with other folds.
    near_identical : sequence of tuple of int
        Groups of near-identical images, from `Duplicates.connected`; they are held out together.
    split_duplicates : bool
        Hold near-identical images out one by one.
    verbose : bool
        Show a progress bar.

    Examples
    --------
    Two clusters of ten points, and one more point with the label of the other cluster:

    >>> random = np.random.default_rng(0)
    >>> latents = np.concatenate([random.normal(-3, 1, (10, 2)), random.normal(3, 1, (11, 2))])
    >>> found = audit(latents, ["left"] * 10 + ["right"] * 10 + ["left"])
    >>> found.disagreeing.tolist(), str(found.classes[found.likeliest[20]])
    ([20], 'right')
    """
    classes, numbers = check_labels(labels, len(latents))
    check_class_sizes(classes, numbers, smallest=2)
    check_kernel_memory(len(latents))
    groups = None if groups is None else check_groups(groups, len(latents))
    groups = groups if split_duplicates else join_groups(groups, near_identical, len(latents))
    settings = Recipe()
    there = torch.from_numpy(np.asarray(latents, dtype=np.float64))
    there = latent_scale(there, standardize=True).apply(there)
    squared = squared_distances(there)
    rule = SVMCandidate(settings.C)
    kernel, targets = rbf_kernel(squared, gamma_from_scale(there)), torch.from_numpy(numbers)
    folds = [cross_validation_folds(numbers, np.random.default_rng(repeat), groups) for repeat in range(repeats)]
    chances, misclassified = _cross_validate(rule, kernel, targets, folds, verbose=verbose)
    near_identical_to = _nearest_in_groups(near_identical, squared, numbers)
    conflicting = _find_conflicting(numbers, near_identical_to)
    return Audit(
        classes=classes,
        numbers=numbers,
        probabilities=chances,
        misclassified=misclassified,
        bounded=_at_bound(rule, kernel, targets),
        near_identical=list(near_identical),
        near_identical_to=near_identical_to,
        order=_rank(chances[np.arange(len(numbers)), numbers], conflicting),
    )


def _nearest_in_groups(groups: Sequence[Group], squared: Tensor, numbers: np.ndarray) -> np.ndarray:
    """Return the image (n,) of the same group with the nearest latent, one of another class if there is any, or -1."""
    nearest = np.full(len(numbers), -1)
    for group in groups:
        members = np.array(group)
        distances = squared[members][:, members].numpy()
        for index, position in enumerate(group):
            others = np.delete(np.arange(len(group)), index)
            same_class = numbers[members[others]] == numbers[position]
            nearest[position] = members[others[np.lexsort((distances[index, others], same_class))[0]]]
    return nearest


def _find_conflicting(numbers: np.ndarray, near_identical_to: np.ndarray) -> np.ndarray:
    return (near_identical_to >= 0) & (numbers[near_identical_to] != numbers)


def _cross_validate(
    rule: SVMCandidate, kernel: Tensor, targets: Tensor, repeats: list[np.ndarray], *, verbose: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (n, n_classes) and error rates (n,), averaged over repeats with different folds (n,)."""
    predictions, errors = [], []
    with item_progress("Cross-validation", len(repeats), visible=verbose) as advance:
        for folds in repeats:
            predicted, wrong = _held_out(rule, kernel, targets, torch.from_numpy(folds))
            predictions.append(predicted)
            errors.append(wrong)
            advance()
    return np.mean(predictions, axis=0), np.mean(errors, axis=0)


def _held_out(rule: SVMCandidate, kernel: Tensor, targets: Tensor, folds: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return cross-validated probabilities (n, n_classes) and errors (n,); NaN and 0 for images never held out."""
    _, scores = choose_candidate([(rule, fixed(kernel))], targets, folds)
    held_out = (folds != NEVER_HELD_OUT).numpy()
    predicted = np.full((len(targets), int(targets.max()) + 1), np.nan)
    wrong = np.zeros(len(targets))
    if held_out.any():
        held_out_labels = targets[folds != NEVER_HELD_OUT]
        predicted[held_out] = probabilities(scores, fit_inverse_temperature(scores, held_out_labels)).numpy()
        wrong[held_out] = (class_numbers(scores) != held_out_labels).numpy()
    return predicted, wrong


def _at_bound(rule: SVMCandidate, kernel: Tensor, targets: Tensor) -> np.ndarray:
    """Return which images (n,) violate the margin of the SVM of their own class."""
    margin = rule.fit(kernel, targets)
    own = targets[margin.support] if margin.coefficients.shape[1] > 1 else torch.zeros_like(margin.support)
    coefficients = margin.coefficients[torch.arange(len(own)), own].abs()
    bounded = np.zeros(len(targets), dtype=bool)
    bounded[margin.support[coefficients >= _AT_BOUND * rule.C].numpy()] = True
    return bounded


def _rank(given_probability: np.ndarray, conflicting: np.ndarray) -> np.ndarray:
    """Return all images: conflicting ones first, then by the probability of the given class."""
    return np.lexsort((np.nan_to_num(given_probability, nan=1.0), ~conflicting))


COLUMNS = (
    "rank",
    "path",
    "label",
    "disagrees",
    "probability",
    "likeliest",
    "likeliest_probability",
    "misclassified",
    "bounded",
    "twin",
    "twin_label",
)


@dataclass(frozen=True)
class NamedAudit:
    """An audit with the names of its images (n), and a sentence that says which network encoded them."""

    found: Audit
    names: list[str]
    latents_from: str


def describe_issues(audited: NamedAudit, position: int) -> list[str]:
    """Return short sentences that say why the label of an image is doubtful.

    Examples
    --------
    >>> found = audit(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [5.3]]), list("aaabbba"))
    >>> describe_issues(NamedAudit(found, list("tuvwxyz"), ""), 6)[0][:16]
    'looks like b (0.'
    """
    found, sentences = audited.found, []
    likeliest, number = found.likeliest[position], found.numbers[position]
    if likeliest != number:
        chance, given = found.probabilities[position, likeliest], found.given_probability[position]
        sentences.append(f"looks like {found.classes[likeliest]} ({chance:.2f}, the given label {given:.2f})")
    other = int(found.near_identical_to[position])
    if other >= 0:
        same = found.numbers[other] == number
        label = "of the same class" if same else f"which is labelled {found.classes[found.numbers[other]]}"
        sentences.append(f"near-identical to {audited.names[other]}, {label}")
    if found.bounded[position]:
        sentences.append("violates the margin")
    return sentences


def describe_accuracy(found: Audit) -> list[str]:
    """Return what the audit itself can tell: its cross-validated accuracy, and a warning where that is low.

    Examples
    --------
    >>> found = audit(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [5.3]]), list("aaabbba"))
    >>> describe_accuracy(found)[0]
    'Cross-validated balanced accuracy 0.875 with 2 classes, by the labels as they are.'
    """
    accuracy = f"{found.balanced_accuracy:.3f}"
    sentences = [
        f"Cross-validated balanced accuracy {accuracy} with {len(found.classes)} classes, by the labels as they are."
    ]
    if found.is_weak:
        sentences.append(
            f"That is low (below {LOW_ACCURACY}): most of the images below are errors of the classifier, not of the"
            " labels. Use the order, look at the first ones, and stop where labels are right."
        )
    return sentences


def group_noun(groups: list[Group]) -> str:
    """Return "pair" if all groups have two members, else "group"."""
    return "pair" if all(len(group) == 2 for group in groups) else "group"


def write_audit_table(audited: NamedAudit, path: Path) -> None:
    """Write a CSV file of all images, the most doubtful label first."""
    found, text = audited.found, io.StringIO()
    disagreeing = set(found.disagreeing.tolist())
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rank, position in enumerate(found.order.tolist(), start=1):
        writer.writerow([rank, audited.names[position], *_row(audited, position, disagrees=position in disagreeing)])
    write_text(path, text.getvalue())


def _row(audited: NamedAudit, position: int, *, disagrees: bool) -> list[str]:
    found = audited.found
    likeliest, other = found.likeliest[position], int(found.near_identical_to[position])
    return [
        str(found.classes[found.numbers[position]]),
        _yes_no(disagrees),
        _format(found.given_probability[position]),
        str(found.classes[likeliest]),
        _format(found.probabilities[position, likeliest]),
        _format(found.misclassified[position]),
        _yes_no(bool(found.bounded[position])),
        "" if other < 0 else audited.names[other],
        "" if other < 0 else str(found.classes[found.numbers[other]]),
    ]


def _format(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"
