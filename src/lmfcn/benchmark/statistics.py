"""Means with their spread, and differences with their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

_DIGITS = 12


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of `n` values; the deviation of a single one is None."""

    mean: float
    deviation: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """Mean of `n` paired differences and the ends of its confidence interval, infinite for a single pair."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def summarize(values: Sequence[float]) -> Summary:
    """Return mean and sample standard deviation.

    Examples
    --------
    >>> summarize([1.0, 2.0, 3.0])
    Summary(mean=2.0, deviation=1.0, n=3)
    """
    if len(values) == 0:
        raise ValueError("There is no value to summarize.")
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), deviation, len(values))


def paired_difference(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    confidence: float = 0.95,
    test_to_train: float = 0.0,
    resolution: float = 0.0,
) -> Difference:
    """Return the mean of ours minus theirs with Student's confidence interval.

    Parameters
    ----------
    ours, theirs : sequences of float (n,)
        Results on the same n splits, in the same order.
    confidence : float, default=0.95
    test_to_train : float, default=0
        Above 0, the interval is that of the corrected resampled t-test (Nadeau and Bengio, 2003): splits of one
        set of images overlap, so their results are not independent, and the variance of the mean is
        (1/n + test images / training images) times that of the differences, not 1/n times.
    resolution : float, default=0
        The largest step that one test image can make in a result. Differences are taken to vary by at least that: a
        few small test sets may give the same difference by accident, and are no certainty.

    Examples
    --------
    >>> found = paired_difference([0.9, 0.8, 0.9], [0.7, 0.7, 0.6])
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.2, -0.048, 0.448)
    """
    found = _summarize_pairs(ours, theirs)
    if not 0 < confidence < 1 or test_to_train < 0:
        raise ValueError(f"confidence {confidence} must be inside 0 and 1, test_to_train {test_to_train} at least 0.")
    if found.deviation is None:
        return Difference(found.mean, -math.inf, math.inf, 1)
    error = max(found.deviation, resolution) * math.sqrt(1 / found.n + test_to_train)
    reach = float(student.ppf((1 + confidence) / 2, found.n - 1)) * error
    return Difference(found.mean, found.mean - reach, found.mean + reach, found.n)


def paired_p_value(
    ours: Sequence[float], theirs: Sequence[float], *, test_to_train: float = 0.0, resolution: float = 0.0
) -> float:
    """Return the two-sided p-value of the test that `paired_difference` takes its interval from; 1 for one pair.

    Parameters
    ----------
    ours, theirs : sequences of float (n,)
    test_to_train, resolution : float, default=0
        As in `paired_difference`.

    Examples
    --------
    >>> round(paired_p_value([0.9, 0.8, 0.9], [0.7, 0.7, 0.6]), 3)
    0.074
    """
    found = _summarize_pairs(ours, theirs)
    if found.deviation is None or found.mean == 0:
        return 1.0
    error = max(found.deviation, resolution) * math.sqrt(1 / found.n + test_to_train)
    return 0.0 if error == 0 else float(2 * student.sf(abs(found.mean) / error, found.n - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's method, in the same order.

    Examples
    --------
    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return corrected.tolist()


def _summarize_pairs(ours: Sequence[float], theirs: Sequence[float]) -> Summary:
    """Return mean and deviation of the differences; equal means differ by zero, not by what a sum leaves over."""
    if len(ours) != len(theirs) or len(ours) == 0:
        raise ValueError(f"Paired values must be equally many and at least one, got {len(ours)} and {len(theirs)}.")
    found = summarize(np.subtract(ours, theirs).tolist())
    return replace(found, mean=round(found.mean, _DIGITS) + 0.0)  # the sum makes 0 of -0
