"""Splits that keep every class on both sides, and every group on one."""

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold


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
    if groups is not None:
        return _hold_out_groups(numbers, fraction, random, groups)
    held_out = []
    for number in range(numbers.max() + 1):
        members = random.permutation(np.flatnonzero(numbers == number))
        held_out.append(members[: max(1, round(fraction * len(members)))])
    return _both_sides(len(numbers), np.concatenate(held_out))


def _hold_out_groups(
    numbers: np.ndarray, fraction: float, random: np.random.Generator, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    n_groups = len(np.unique(groups))
    n_folds = max(2, min(round(1 / fraction), n_groups, np.bincount(numbers).min()))
    if n_groups < 2:
        raise ValueError("All images are in one group; at least 2 groups are needed to hold some out.")
    folds = StratifiedGroupKFold(n_folds, shuffle=True, random_state=int(random.integers(2**31)))
    for kept, held_out in folds.split(numbers[:, None], numbers, groups):
        if len(np.unique(numbers[kept])) == len(np.unique(numbers[held_out])) == numbers.max() + 1:
            return _both_sides(len(numbers), held_out)
    raise ValueError(
        f"The {n_groups} groups cannot be split so that every class is on both sides;"
        " every class must occur in at least 2 groups. Give a validation set of your own, or validation_fraction=0."
    )


def _both_sides(n_images: int, held_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    aside = np.zeros(n_images, dtype=bool)
    aside[held_out] = True
    return np.flatnonzero(~aside), np.flatnonzero(aside)
