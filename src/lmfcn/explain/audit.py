"""Audit a training set: images that are likely mislabelled or duplicated, ranked."""

import csv
import io
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmfcn.baselines.network_svm import RandomFCN
from lmfcn.classifier import LMFCNClassifier
from lmfcn.compute.resources import check_kernel_memory
from lmfcn.data.arrays import check_class_sizes, check_labels
from lmfcn.data.collection import ImageCollection
from lmfcn.data.splits import check_groups
from lmfcn.method.kernel_svm import class_numbers, gamma_from_scale, latent_scale, rbf_kernel, squared_distances
from lmfcn.model import probabilities
from lmfcn.model_file import load
from lmfcn.recipe import Recipe
from lmfcn.training.calibration import fit_inverse_temperature
from lmfcn.training.final_svm import ALWAYS, Rule, choose_rule, fixed
from lmfcn.training.fit import judging_folds
from lmfcn.util.files import write_text
from lmfcn.util.progress import item_progress


def latents_for_audit(
    images: ImageCollection,
    model: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    *,
    quick: bool = False,
    verbose: bool = False,
) -> tuple[np.ndarray, str]:
    """Return latents (n, phi) of labelled images, and a sentence about where they come from.

    Parameters
    ----------
    images : ImageCollection
    model : Path, optional
        File of a fitted model; without one, a model is trained on the images.
    seed : int
    device : str
        Where to encode, and to train if need be.
    quick : bool
        Take the untrained network, which knows no labels, and train nothing.
    verbose : bool
        Show progress.
    """
    if model is not None:
        return load(model, device).latents(images).cpu().numpy(), f"The images were encoded by the model {model}."
    if quick:
        untrained = RandomFCN(
            pooling="all", first_filters="decorrelated", device=device, random_state=seed, verbose=verbose
        )
        return untrained.fit(images).transform(images), "The images were encoded by an untrained network."
    # Without refit epochs the network learns the labels of fewer images, and so fewer wrong ones by heart.
    trained = LMFCNClassifier(recipe=Recipe(refit_epochs=0), device=device, random_state=seed, verbose=verbose).fit(
        images
    )
    latents = trained.model_.latents(images).cpu().numpy()
    return latents, "The images were encoded by a model that was trained on them as they are labelled."


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
    settings = Recipe()
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
        predicted[held_out] = probabilities(scores, fit_inverse_temperature(scores, mine)).numpy()
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


COLUMNS = (
    "rank",
    "path",
    "label",
    "suspect",
    "probability",
    "likeliest",
    "likeliest_probability",
    "misclassified",
    "bounded",
    "twin",
    "twin_label",
)


@dataclass(frozen=True)
class Audited:
    """An audit with the names of its images (n), and a sentence about the latents that it rests on."""

    found: Audit
    names: list[str]
    latents_from: str

    @cached_property
    def twin_of(self) -> dict[int, int]:
        """The near-identical image of each image that has one: of another class if there is one, else the nearest."""
        twins: dict[int, int] = {}
        for first, second in [*self.found.conflicts, *self.found.twins]:
            twins.setdefault(first, second)
            twins.setdefault(second, first)
        return twins


def doubts(audited: Audited, position: int) -> list[str]:
    """Say in words what is doubtful about an image.

    Examples
    --------
    >>> import numpy as np
    >>> from lmfcn.explain.audit import audit
    >>> found = audit(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [5.3]]), list("aaabbba"))
    >>> doubts(Audited(found, list("tuvwxyz"), ""), 6)[0][:16]
    'looks like b (0.'
    """
    found, sentences = audited.found, []
    likeliest, number = found.likeliest[position], found.numbers[position]
    if likeliest != number:
        chance, given = found.probabilities[position, likeliest], found.given[position]
        sentences.append(f"looks like {found.classes[likeliest]} ({chance:.2f}, the given label {given:.2f})")
    twin = audited.twin_of.get(position)
    if twin is not None:
        same = found.numbers[twin] == number
        label = "of the same class" if same else f"which is labelled {found.classes[found.numbers[twin]]}"
        sentences.append(f"near-identical to {audited.names[twin]}, {label}")
    if found.bounded[position]:
        sentences.append("violates the margin")
    return sentences


def write_audit_table(audited: Audited, path: Path) -> None:
    """Write all images, the most doubtful first, as CSV; whole or not at all."""
    found, text = audited.found, io.StringIO()
    suspects = set(found.suspects.tolist())
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rank, position in enumerate(found.order.tolist(), start=1):
        writer.writerow([rank, audited.names[position], *_row(audited, position, suspect=position in suspects)])
    write_text(path, text.getvalue())


def _row(audited: Audited, position: int, *, suspect: bool) -> list[str]:
    found = audited.found
    likeliest, twin = found.likeliest[position], audited.twin_of.get(position)
    return [
        str(found.classes[found.numbers[position]]),
        _yes(suspect),
        _share(found.given[position]),
        str(found.classes[likeliest]),
        _share(found.probabilities[position, likeliest]),
        _share(found.misclassified[position]),
        _yes(bool(found.bounded[position])),
        "" if twin is None else audited.names[twin],
        "" if twin is None else str(found.classes[found.numbers[twin]]),
    ]


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
