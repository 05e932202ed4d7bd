"""Split images into parts: every class in every part, every group in one part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmfcn.data.arrays import RandomState, as_entries, as_generator, check_labels


@dataclass(frozen=True)
class Split:
    """Ascending indices of the training, validation and test images."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split(
    labels: Any,
    *,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    counts: Sequence[int | None] | None = None,
    groups: Any = None,
    random_state: RandomState = None,
) -> Split:
    """Split images into training, validation and test, stratified by class.

    Parameters
    ----------
    labels : array-like (n,)
    fractions : three floats, default=(0.6, 0.2, 0.2)
        Fraction of every class for each part; if they sum to less than 1, the rest is unused.
    counts : three ints, optional
        Images per class instead of fractions; one of them may be None for all remaining images.
    groups : array-like (n,), optional
        No group is in two parts; fractions and counts are then met as closely as the groups allow.
    random_state : None, int or NumPy generator, optional

    Examples
    --------
    >>> parts = split(["a"] * 10 + ["b"] * 20, random_state=0)
    >>> len(parts.train), len(parts.validation), len(parts.test)
    (18, 6, 6)
    """
    classes, numbers = check_labels(labels, len(labels))
    totals = np.bincount(numbers)
    if counts is None:
        wanted = _counts_from_fractions(classes, totals, fractions)
    else:
        wanted = _check_counts(classes, totals, counts)
    random = as_generator(random_state)
    if groups is None:
        parts = _split_images(numbers, wanted, random)
    else:
        parts = _split_groups(numbers, wanted, random, check_groups(groups, len(numbers)))
    return Split(*parts)


def repeated_splits(labels: Any, repeats: int = 5, random_state: int = 0, **options: Any) -> Iterator[Split]:
    """Yield `repeats` splits, each with its own seed; the paper uses five."""
    for repeat in range(repeats):
        yield split(labels, random_state=random_state + repeat, **options)


def hold_out(
    numbers: np.ndarray, fraction: float, random: np.random.Generator, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a fraction of every class; return ascending indices (remaining, held out).

    Parameters
    ----------
    numbers : array of int (n,)
        Class number of every image.
    fraction : float
        Fraction of every class to hold out, at least one image of each.
    random : numpy.random.Generator
    groups : array (n,), optional
        Images of one group (a patient, a slide) stay in one part; classes are then balanced as well
        as the groups allow.

    Examples
    --------
    >>> remaining, held_out = hold_out(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 0.25, np.random.default_rng(0))
    >>> len(remaining), len(held_out)
    (6, 2)
    """
    totals = np.bincount(numbers)
    n_held_out = np.maximum(1, np.rint(fraction * totals).astype(int))
    wanted = np.stack([totals - n_held_out, n_held_out])
    if groups is None:
        remaining, held_out = _split_images(numbers, wanted, random)
    else:
        remaining, held_out = _split_groups(numbers, wanted, random, groups)
    return remaining, held_out


def make_folds(
    numbers: np.ndarray, n_folds: int, random: np.random.Generator, groups: np.ndarray | None = None
) -> np.ndarray:
    """Return the fold (n,) of every image: stratified by class, every group in one fold.

    Sets with fewer images or groups than `n_folds` fill fewer folds.

    Examples
    --------
    >>> folds = make_folds(np.array([0] * 6 + [1] * 3), 3, np.random.default_rng(0))
    >>> np.bincount(folds).tolist(), np.bincount(folds[6:]).tolist()
    ([3, 3, 3], [1, 1, 1])
    """
    group_indices = np.arange(len(numbers)) if groups is None else np.unique(groups, return_inverse=True)[1]
    counts = np.zeros((group_indices.max() + 1, numbers.max() + 1))  # images of each group in each class
    np.add.at(counts, (group_indices, numbers), 1)
    shuffled = random.permutation(len(counts))
    in_fold, fold = np.zeros((n_folds, counts.shape[1])), np.zeros(len(counts), dtype=int)
    for group in shuffled[np.argsort(-counts[shuffled].sum(axis=1), kind="stable")]:
        # The fold with the fewest images of its classes; among equal ones, that with the fewest images.
        fold[group] = min(range(n_folds), key=lambda k: (in_fold[k] @ (counts[group] > 0), in_fold[k].sum()))
        in_fold[fold[group]] += counts[group]
    return fold[group_indices]


def _split_images(numbers: np.ndarray, wanted: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Return the indices of random parts with `wanted` (n_parts, n_classes) images."""
    parts: list[list[np.ndarray]] = [[] for _ in wanted]
    for number in range(wanted.shape[1]):
        members = random.permutation(np.flatnonzero(numbers == number))
        stops = np.cumsum(wanted[:, number])
        for part, start, stop in zip(parts, [0, *stops[:-1]], stops, strict=True):
            part.append(members[start:stop])
    return [np.sort(np.concatenate(part)) for part in parts]


def _split_groups(
    numbers: np.ndarray, wanted: np.ndarray, random: np.random.Generator, groups: np.ndarray
) -> list[np.ndarray]:
    """Assign whole groups, large ones first, each to the part that needs it most."""
    names, group_indices = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), wanted.shape[1]))  # images of each group in each class
    np.add.at(counts, (group_indices, numbers), 1)
    totals = counts.sum(axis=0)
    unused = np.maximum(totals - wanted.sum(axis=0), 0)
    goal = np.vstack([wanted, unused])
    shuffled = random.permutation(len(names))
    order = shuffled[np.argsort(-counts[shuffled].sum(axis=1), kind="stable")]
    assigned, part_of = np.zeros_like(goal), np.zeros(len(names), dtype=int)
    for group in order:
        part_of[group] = min(
            range(len(goal)), key=lambda part: _added_cost(assigned[part], counts[group], goal[part], totals)
        )
        assigned[part_of[group]] += counts[group]
    if ((assigned[:-1] == 0) & (wanted > 0)).any():
        raise ValueError(
            f"The {len(names)} groups cannot be split so that every class is in every part: every class must occur in"
            f" at least {len(wanted)} groups. Give more groups, or a validation set of your own."
        )
    return [np.flatnonzero(part_of[group_indices] == part) for part in range(len(wanted))]


def _added_cost(assigned: np.ndarray, group: np.ndarray, goal: np.ndarray, totals: np.ndarray) -> float:
    """Return how much the cost of a part changes when a group is added: its distance from the goal."""

    def cost(counts: np.ndarray) -> float:
        # A wanted class without any image costs more than any imbalance.
        return float((np.square((counts - goal) / totals) + 10.0 * ((counts == 0) & (goal > 0))).sum())

    return cost(assigned + group) - cost(assigned)


def _counts_from_fractions(classes: np.ndarray, totals: np.ndarray, fractions: Sequence[float]) -> np.ndarray:
    """Return the number of images for every part and class (3, n_classes)."""
    shares = np.asarray(fractions, dtype=float)
    if shares.shape != (3,) or shares.min() < 0 or shares.sum() > 1 + 1e-9:
        raise ValueError(
            f"fractions must be three numbers from 0 to 1 with a sum of at most 1, got {tuple(fractions)}."
        )
    stops = np.rint(np.cumsum(shares)[:, None] * totals).astype(int)
    wanted = np.diff(stops, axis=0, prepend=0)
    missing = (wanted == 0) & (shares[:, None] > 0)
    if missing.any():
        small = int(np.flatnonzero(missing.any(axis=0))[0])
        raise ValueError(
            f"Class {classes[small].item()!r} has {totals[small]} images, too few for the fractions {tuple(fractions)};"
            " every part needs at least one."
        )
    return wanted


def _check_counts(classes: np.ndarray, totals: np.ndarray, counts: Sequence[int | None]) -> np.ndarray:
    """Return the counts for every part and class (3, n_classes), None replaced by the remaining images."""
    if (
        len(counts) != 3
        or sum(count is None for count in counts) > 1
        or any(count is not None and count < 0 for count in counts)
    ):
        raise ValueError(
            f"counts must be three numbers of images per class, at most one of them None, got {tuple(counts)}."
        )
    fixed = sum(count for count in counts if count is not None)
    needed = fixed + (None in counts)
    if totals.min() < needed:
        small = int(totals.argmin())
        raise ValueError(
            f"Class {classes[small].item()!r} has {totals[small]} images, but {needed} are needed per class."
        )
    return np.stack([totals - fixed if count is None else np.full_like(totals, count) for count in counts])


def check_groups(groups: Any, n_images: int) -> np.ndarray:
    """Return the groups as an array with one entry per image."""
    groups = as_entries("groups", groups)
    if groups.shape != (n_images,):
        raise ValueError(f"groups must hold one entry per image, shape ({n_images},), got shape {groups.shape}.")
    return groups
