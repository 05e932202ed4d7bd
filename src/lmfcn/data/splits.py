"""Splits that keep every class on every side, and every group on one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmfcn.data.arrays import RandomState, as_entries, as_generator, check_labels


@dataclass(frozen=True)
class Split:
    """Ascending indices of the images for fitting, for choosing and for the final test."""

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
    """Divide images into training, validation and test, class by class.

    Parameters
    ----------
    labels : array-like (n,)
    fractions : three floats, default=(0.6, 0.2, 0.2)
        Shares of every class; what is missing to 1 is left out.
    counts : three ints, optional
        Images per class instead of shares; one of them may be None for all the rest.
    groups : array-like (n,), optional
        No group gets on two sides; shares and counts are then met as well as the groups allow.
    random_state : None, int or NumPy generator, optional

    Examples
    --------
    >>> parts = split(["a"] * 10 + ["b"] * 20, random_state=0)
    >>> len(parts.train), len(parts.validation), len(parts.test)
    (18, 6, 6)
    """
    classes, numbers = check_labels(labels, len(labels))
    totals = np.bincount(numbers)
    wanted = _by_counts(classes, totals, counts) if counts is not None else _by_fractions(classes, totals, fractions)
    random = as_generator(random_state)
    if groups is None:
        parts = _divide(numbers, wanted, random)
    else:
        parts = _divide_groups(numbers, wanted, random, check_groups(groups, len(numbers)))
    return Split(*parts)


def repeated_splits(labels: Any, repeats: int = 5, random_state: int = 0, **options: Any) -> Iterator[Split]:
    """Yield as many splits as there are repetitions, each from a seed of its own, as the paper's five."""
    for repeat in range(repeats):
        yield split(labels, random_state=random_state + repeat, **options)


def hold_out(
    numbers: np.ndarray, fraction: float, random: np.random.Generator, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Set a fraction of every class aside; return ascending indices (kept, held out).

    Parameters
    ----------
    numbers : array of int (n,)
        Class number of every image.
    fraction : float
        Share to hold out of every class, at least one image of each.
    random : numpy.random.Generator
    groups : array (n,), optional
        Images of one group (a patient, a slide) stay on one side; classes are then balanced as well
        as the groups allow.

    Examples
    --------
    >>> kept, held_out = hold_out(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 0.25, np.random.default_rng(0))
    >>> len(kept), len(held_out)
    (6, 2)
    """
    totals = np.bincount(numbers)
    aside = np.maximum(1, np.rint(fraction * totals).astype(int))
    wanted = np.stack([totals - aside, aside])
    if groups is None:
        kept, held_out = _divide(numbers, wanted, random)
    else:
        kept, held_out = _divide_groups(numbers, wanted, random, groups)
    return kept, held_out


def make_folds(
    numbers: np.ndarray, n_folds: int, random: np.random.Generator, groups: np.ndarray | None = None
) -> np.ndarray:
    """Return the fold (n,) of every image: classes spread evenly, groups undivided; small sets fill fewer folds.

    Examples
    --------
    >>> folds = make_folds(np.array([0] * 6 + [1] * 3), 3, np.random.default_rng(0))
    >>> np.bincount(folds).tolist(), np.bincount(folds[6:]).tolist()
    ([3, 3, 3], [1, 1, 1])
    """
    membership = np.arange(len(numbers)) if groups is None else np.unique(groups, return_inverse=True)[1]
    counts = np.zeros((membership.max() + 1, numbers.max() + 1))  # images of each group in each class
    np.add.at(counts, (membership, numbers), 1)
    shuffled = random.permutation(len(counts))
    given, fold = np.zeros((n_folds, counts.shape[1])), np.zeros(len(counts), dtype=int)
    for group in shuffled[np.argsort(-counts[shuffled].sum(axis=1), kind="stable")]:
        # Where its own classes are fewest; among those, where images are fewest.
        fold[group] = min(range(n_folds), key=lambda k: (given[k] @ (counts[group] > 0), given[k].sum()))
        given[fold[group]] += counts[group]
    return fold[membership]


def _divide(numbers: np.ndarray, wanted: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Deal out `wanted` (n_parts, n_classes) images."""
    parts: list[list[np.ndarray]] = [[] for _ in wanted]
    for number in range(wanted.shape[1]):
        members = random.permutation(np.flatnonzero(numbers == number))
        stops = np.cumsum(wanted[:, number])
        for part, start, stop in zip(parts, [0, *stops[:-1]], stops, strict=True):
            part.append(members[start:stop])
    return [np.sort(np.concatenate(part)) for part in parts]


def _divide_groups(
    numbers: np.ndarray, wanted: np.ndarray, random: np.random.Generator, groups: np.ndarray
) -> list[np.ndarray]:
    """Give whole groups, large ones first, to the part that then comes nearest to what is wanted."""
    names, membership = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), wanted.shape[1]))  # images of each group in each class
    np.add.at(counts, (membership, numbers), 1)
    totals = counts.sum(axis=0)
    left_over = np.maximum(totals - wanted.sum(axis=0), 0)
    goal = np.vstack([wanted, left_over])
    shuffled = random.permutation(len(names))
    order = shuffled[np.argsort(-counts[shuffled].sum(axis=1), kind="stable")]
    given, owner = np.zeros_like(goal), np.zeros(len(names), dtype=int)
    for group in order:
        owner[group] = min(range(len(goal)), key=lambda part: _change(given[part], counts[group], goal[part], totals))
        given[owner[group]] += counts[group]
    if ((given[:-1] == 0) & (wanted > 0)).any():
        raise ValueError(
            f"The {len(names)} groups cannot be split so that every class is on both sides: every class must occur in"
            f" at least {len(wanted)} groups. Give more groups, or a validation set of your own."
        )
    return [np.flatnonzero(owner[membership] == part) for part in range(len(wanted))]


def _change(given: np.ndarray, group: np.ndarray, goal: np.ndarray, totals: np.ndarray) -> float:
    """Return by how much a part gets further from its goal when a group joins it."""

    def distance(amount: np.ndarray) -> float:
        # A class that is wanted and has nothing yet is worse than any imbalance.
        return float((np.square((amount - goal) / totals) + 10.0 * ((amount == 0) & (goal > 0))).sum())

    return distance(given + group) - distance(given)


def _by_fractions(classes: np.ndarray, totals: np.ndarray, fractions: Sequence[float]) -> np.ndarray:
    shares = np.asarray(fractions, dtype=float)
    if shares.shape != (3,) or shares.min() < 0 or shares.sum() > 1 + 1e-9:
        raise ValueError(f"fractions must be three shares of at most 1 in all, got {tuple(fractions)}.")
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


def _by_counts(classes: np.ndarray, totals: np.ndarray, counts: Sequence[int | None]) -> np.ndarray:
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
