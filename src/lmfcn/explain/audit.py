"""Training images that are likely mislabelled or there twice, ranked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmfcn.algorithm.calibration import fit_sharpness, probabilities
from lmfcn.algorithm.final_svm import ALWAYS, Rule, choose_rule, fixed
from lmfcn.algorithm.geometry import gamma_from_scale, latent_scale, rbf_kernel, squared_distances
from lmfcn.algorithm.score import class_numbers
from lmfcn.algorithm.settings import Settings
from lmfcn.data.arrays import check_class_sizes, check_labels
from lmfcn.data.splits import check_groups
from lmfcn.fitting import judging_folds
from lmfcn.memory import check_kernel_memory
from lmfcn.progress import item_progress

REPEATS = 5
"""Cross-validations, each with other folds, that every image is judged by."""

NEAR = 0.1
"""Latents are near-identical if their distance is below this share of the median distance to the nearest neighbour."""

_AT_BOUND = 1 - 1e-6


@dataclass(frozen=True)
class Audit:
    """What is doubtful about the labels of images.

    Attributes
    ----------
    classes : array (n_classes,)
        Labels in sorted order.
    numbers : array of int (n,)
        The given class of each image, as a position in `classes`.
    probabilities : array (n, n_classes)
        Of each class by SVMs that had not learnt from the image, mean over all repeats; NaN for the images of a class
        (or of a group with one) that is too small to take any of them away.
    misclassified : array (n,)
        Share of the repeats in which such an SVM predicted another class than the given one.
    bounded : array of bool (n,)
        Whether the image violates the margin of the SVM on all images: a support vector at its bound.
    twins : list of pairs of int
        Images with near-identical latents, the nearest first; the smaller position comes first in each.
    order : array of int (n,)
        All images, the most doubtful first: near-identical to an image of another class, then by the probability of
        the given class.
    """

    classes: np.ndarray
    numbers: np.ndarray
    probabilities: np.ndarray
    misclassified: np.ndarray
    bounded: np.ndarray
    twins: list[tuple[int, int]]
    order: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def conflicts(self) -> list[tuple[int, int]]:
        """The twins of which the two have different labels: one of these is wrong, or the classes overlap."""
        return [pair for pair in self.twins if self.numbers[pair[0]] != self.numbers[pair[1]]]

    @property
    def given(self) -> np.ndarray:
        """The probability (n,) of the given class of each image."""
        return self.probabilities[np.arange(len(self)), self.numbers]

    @property
    def likeliest(self) -> np.ndarray:
        """The most probable class (n,) of each image, the given one where nothing is known."""
        return np.where(np.isnan(self.given), self.numbers, self.probabilities.argmax(axis=1))

    @property
    def suspects(self) -> np.ndarray:
        """The images, most doubtful first, that look like another class or are twins of an image of another class."""
        doubtful = self.likeliest != self.numbers
        doubtful[[position for pair in self.conflicts for position in pair]] = True
        return self.order[doubtful[self.order]]


def audit(
    latents: np.ndarray,
    labels: Any,
    groups: Any = None,
    repeats: int = REPEATS,
    *,
    verbose: bool = False,
) -> Audit:
    """Look for doubtful labels with the latents of images.

    Parameters
    ----------
    latents : array (n, phi)
        As `TextureModel.latents` gives them; not whitened by the labels that are in doubt, as those of `transform` are.
    labels : array-like (n,)
    groups : array-like (n,), optional
        Images of one group are judged by SVMs that have seen none of them.
    repeats : int
        Cross-validations, each with other folds.
    verbose : bool
        Show a progress bar.

    Examples
    --------
    Ten points on each of two sides, and one with the label of the other side:

    >>> random = np.random.default_rng(0)
    >>> latents = np.concatenate([random.normal(-3, 1, (10, 2)), random.normal(3, 1, (11, 2))])
    >>> found = audit(latents, ["left"] * 10 + ["right"] * 10 + ["left"])
    >>> found.suspects.tolist(), str(found.classes[found.likeliest[20]])
    ([20], 'right')
    """
    classes, numbers = check_labels(labels, len(latents))
    check_class_sizes(classes, numbers, smallest=2)
    check_kernel_memory(len(latents))
    groups = None if groups is None else check_groups(groups, len(latents))
    settings = Settings()
    there = torch.from_numpy(np.asarray(latents, dtype=np.float64))
    there = latent_scale(there, standardize=True).apply(there)
    squared = squared_distances(there)
    rule = Rule(settings.C)
    kernel, targets = rbf_kernel(squared, gamma_from_scale(there)), torch.from_numpy(numbers)
    folds = [judging_folds(numbers, np.random.default_rng(repeat), groups) for repeat in range(repeats)]
    chances, misclassified = _judge(rule, kernel, targets, folds, verbose=verbose)
    twins = near_pairs(squared)
    return Audit(
        classes=classes,
        numbers=numbers,
        probabilities=chances,
        misclassified=misclassified,
        bounded=_at_bound(rule, kernel, targets),
        twins=twins,
        order=_ranked(chances[np.arange(len(numbers)), numbers], numbers, twins),
    )


def near_pairs(squared: Tensor) -> list[tuple[int, int]]:
    """Return the pairs that are far nearer to each other than neighbours usually are, the nearest first.

    Parameters
    ----------
    squared : Tensor (n, n)
        Squared distances.
    """
    apart = squared.clone().fill_diagonal_(float("inf"))
    limit = NEAR**2 * float(apart.min(dim=1).values.median())
    first, second = torch.triu(apart <= limit, diagonal=1).nonzero(as_tuple=True)
    order = apart[first, second].argsort(stable=True)
    return list(zip(first[order].tolist(), second[order].tolist(), strict=True))


def _judge(
    rule: Rule, kernel: Tensor, targets: Tensor, repeats: list[np.ndarray], *, verbose: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return means over the repeats, each with its folds (n,): probabilities (n, n_classes) and shares wrong (n,)."""
    judged, wrong = [], []
    with item_progress("Cross-validation", len(repeats), visible=verbose) as advance:
        for folds in repeats:
            predicted, missed = _held_out(rule, kernel, targets, torch.from_numpy(folds))
            judged.append(predicted)
            wrong.append(missed)
            advance()
    return np.mean(judged, axis=0), np.mean(wrong, axis=0)


def _held_out(rule: Rule, kernel: Tensor, targets: Tensor, folds: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (n, n_classes) and whether they are wrong (n,), NaN and 0 where nobody is held out."""
    _, scores = choose_rule([(rule, fixed(kernel))], targets, folds)
    held_out = (folds != ALWAYS).numpy()
    predicted = np.full((len(targets), int(targets.max()) + 1), np.nan)
    wrong = np.zeros(len(targets))
    if held_out.any():
        mine = targets[folds != ALWAYS]
        predicted[held_out] = probabilities(scores, fit_sharpness(scores, mine)).numpy()
        wrong[held_out] = (class_numbers(scores) != mine).numpy()
    return predicted, wrong


def _at_bound(rule: Rule, kernel: Tensor, targets: Tensor) -> np.ndarray:
    """Tell which images (n,) violate the margin of the SVM of their own class."""
    margin = rule.fit(kernel, targets)
    own = targets[margin.support] if margin.coefficients.shape[1] > 1 else torch.zeros_like(margin.support)
    coefficients = margin.coefficients[torch.arange(len(own)), own].abs()
    bounded = np.zeros(len(targets), dtype=bool)
    bounded[margin.support[coefficients >= _AT_BOUND * rule.C].numpy()] = True
    return bounded


def _ranked(given: np.ndarray, numbers: np.ndarray, twins: list[tuple[int, int]]) -> np.ndarray:
    certain = np.zeros(len(given), dtype=bool)
    for first, second in twins:
        if numbers[first] != numbers[second]:
            certain[[first, second]] = True
    return np.lexsort((np.nan_to_num(given, nan=1.0), ~certain))
