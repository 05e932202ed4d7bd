"""Splits that keep every class on both sides, and every group on one."""

import numpy as np


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
    names, membership = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), numbers.max() + 1))  # images of each group in each class
    np.add.at(counts, (membership, numbers), 1)
    totals = counts.sum(axis=0)
    aside: list[int] = []
    held = np.zeros_like(totals)

    def error(held: np.ndarray) -> float:
        # A class without any image held out is worse than any imbalance.
        return float((np.square(held / totals - fraction) + 10.0 * (held == 0)).sum())

    for group in random.permutation(len(names)):
        after = held + counts[group]
        if (after < totals).all() and error(after) < error(held):
            aside.append(group)
            held = after
    if (held == 0).any():
        raise ValueError(
            f"The {len(names)} groups cannot be split so that every class is on both sides: every class must occur in"
            " at least 2 groups. Give a validation set of your own, or validation_fraction=0."
        )
    return _both_sides(len(numbers), np.flatnonzero(np.isin(membership, aside)))


def _both_sides(n_images: int, held_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    aside = np.zeros(n_images, dtype=bool)
    aside[held_out] = True
    return np.flatnonzero(~aside), np.flatnonzero(aside)
