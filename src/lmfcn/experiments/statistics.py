"""Means with their spread, and differences with their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student


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
    ours: Sequence[float], theirs: Sequence[float], *, confidence: float = 0.95, test_to_train: float = 0.0
) -> Difference:
    """Return the mean of ours minus theirs with Student's confidence interval.

    Parameters
    ----------
    ours, theirs : sequences of float (n,)
        Results on the same n divisions, in the same order.
    confidence : float, default=0.95
    test_to_train : float, default=0
        Above 0, the interval is that of the corrected resampled t-test (Nadeau and Bengio, 2003): divisions of one
        set of images overlap, so their results are not independent, and the variance of the mean is
        (1/n + test images / training images) times that of the differences, not 1/n times.

    Examples
    --------
    >>> found = paired_difference([0.9, 0.8, 0.9], [0.7, 0.7, 0.6])
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.2, -0.048, 0.448)
    """
    if len(ours) != len(theirs) or len(ours) == 0:
        raise ValueError(f"Paired values must be equally many and at least one, got {len(ours)} and {len(theirs)}.")
    if not 0 < confidence < 1 or test_to_train < 0:
        raise ValueError(f"confidence {confidence} must be inside 0 and 1, test_to_train {test_to_train} at least 0.")
    found = summarize(np.subtract(ours, theirs).tolist())
    if found.deviation is None:
        return Difference(found.mean, -math.inf, math.inf, 1)
    error = found.deviation * math.sqrt(1 / found.n + test_to_train)
    reach = float(student.ppf((1 + confidence) / 2, found.n - 1)) * error
    return Difference(found.mean, found.mean - reach, found.mean + reach, found.n)
