"""How far recalls may be from the truth, for images that come one by one or in groups."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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
